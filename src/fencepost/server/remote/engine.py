"""The engine protocol over a server's HTTP interface.

The client's group commit gathers appends as for any engine, and one request carries the batch, or a part of a large
one. Readings are pages, each a request of its own that can be repeated. Waiting for a new head is a request that the
server answers when there is one.

A request that got no answer is repeated if that is safe: reads always, an append if each of its events has an id,
since ids make a repeated append one append. Otherwise the append fails, and the error says that its outcome is unknown.
tests/server holds the engine to the contract suite over a real socket, also behind a proxy that delays, cuts and
repeats requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from time import monotonic
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from ... import Placed, Put, Query, Record, SequencedEvent
from ...engine import (
    CHECKPOINTS,
    RECORDS,
    Append,
    Behind,
    Capability,
    Failed,
    ReadStart,
    RecordedAppend,
    Verdict,
    pause,
)
from ...errors import StoreClosed, StoreError, StoreUnavailable
from ...tools import from_wire, to_wire
from ..wire import rows
from ..wire.problems import MEDIA_TYPE as PROBLEM
from ..wire.problems import Problem, error_from
from .transport import Answer, Lost, NotSent, Transport, abort

TIMEOUT_S: Final = 60.0  # for one request; the server gives up on its part much earlier
FIRST_PAUSE_S: Final = 0.02  # between two tries, doubled each time
LONGEST_PAUSE_S: Final = 1.0
LONGEST_WAIT_S: Final = 20.0  # for one request that waits for a new head
PAGE_EVENTS: Final = 4_096
REQUEST_BYTES: Final = 16 * 2**20  # of data in one request, unless one append has more; a server takes 100 MB
JSON: Final = "application/json"
ROWS: Final = {"Content-Type": rows.MEDIA_TYPE, "Accept": rows.MEDIA_TYPE}

_parse_problem = msgspec.json.Decoder(Problem).decode
_parse_head = msgspec.json.Decoder(dict[str, int | str]).decode


class RemoteEngine:
    """A store behind a server."""

    capabilities: Final = Capability.GROUP_COMMIT | Capability.BEGIN | Capability.RECORDED_APPENDS | Capability.RESTORE

    def __init__(self, transport: Transport, *, patience_s: float) -> None:
        self._transport = transport
        self._patience_s = patience_s
        self._waiting: set[HTTPConnection] = set()
        self._interrupts = 0
        self._closed = False
        self._seen = self.head()

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        for part in _requests(appends):
            try:
                verdicts += self._committed(part)
            except StoreError as error:
                if not verdicts:
                    raise
                # Earlier requests were answered. The rest of the batch was not sent, or its answer was lost.
                return verdicts + [Failed(error)] * (len(appends) - len(verdicts))
        return verdicts

    def _committed(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        """Send the appends in one request, and again if that is necessary and safe."""
        verdicts: dict[int, Verdict] = {}
        left = dict(enumerate(appends))
        seen = self._seen
        repeated = False
        deadline = monotonic() + self._patience_s
        while left:
            body = rows.encode([rows.append_row(append) for append in left.values()])
            try:
                answer = self._request("POST", "/v1/appends", body, ROWS, repeat_lost=False)
            except Lost as error:
                for index in [index for index, append in left.items() if not _is_repeatable(append)]:
                    del left[index]
                    verdicts[index] = Failed(_unknown(error))
                repeated = True
                if monotonic() + FIRST_PAUSE_S > deadline or self._closed:
                    raise _unknown(error) from error
                pause(FIRST_PAUSE_S)
                continue
            except StoreUnavailable as error:
                if repeated:  # this try changed nothing, but an earlier one may have
                    raise _unknown(error) from error
                raise
            outcomes = rows.decode_outcomes(answer.body)
            for (index, append), outcome in zip(left.items(), outcomes, strict=True):
                verdict = rows.verdict_from(outcome, append)
                verdicts[index] = self._of_first_try(verdict, append, seen) if repeated else verdict
            left = {}
        last = [verdict.last for verdict in verdicts.values() if isinstance(verdict, Placed)]
        self._seen = max([self._seen, *last])
        return [verdicts[index] for index in range(len(appends))]

    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        page = self._page(query, after, up_to, limit, backwards)
        reach = from_wire(page.reach, "reach")
        events = [rows.stored_from(row) for row in page.events]
        if not page.more:
            return ReadStart(reach, events, None)
        return ReadStart(reach, events, self._rest(events, query, after, reach, limit, backwards))

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        begun = self.begin(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        if begun.page:
            yield begun.page
        if begun.rest is not None:
            yield from begun.rest

    def head(self) -> int:
        head = from_wire(_parse_head(self._request("GET", "/v1/head").body)["head"], "head")
        self._seen = max(getattr(self, "_seen", 0), head)
        return head

    def wait(self, after: int, timeout_s: float) -> int:
        interrupts, deadline = self._interrupts, monotonic() + timeout_s
        head = 0
        while self._interrupts == interrupts and not self._closed:
            rest_s = min(max(deadline - monotonic(), 0), LONGEST_WAIT_S)
            path = f"/v1/head?after={after}&wait_s={rest_s:.3f}"
            try:
                answer = self._checked(
                    self._transport.request("GET", path, timeout_s=rest_s + TIMEOUT_S, lane=self._waiting)
                )
                head = from_wire(_parse_head(answer.body)["head"], "head")
            except StoreUnavailable:  # the server is restarting, or `interrupt` ended the request
                if self._interrupts == interrupts and not self._closed:
                    pause(min(LONGEST_PAUSE_S, max(deadline - monotonic(), 0)))
            if head > after or monotonic() >= deadline:
                break
        self._seen = max(self._seen, head)
        return max(head, min(self._seen, after))

    def interrupt(self) -> None:
        self._interrupts += 1
        for connection in list(self._waiting):
            abort(connection)

    def record(self, key: str) -> Record | None:
        space = CHECKPOINTS if key.startswith(CHECKPOINTS) else RECORDS
        answer = self._request("GET", f"/v1/{space}{quote(key.removeprefix(space), safe='')}", headers=ROWS)
        if space == CHECKPOINTS:
            return Record(key, b"%d" % from_wire(msgspec.json.decode(answer.body)["position"], "position"), 0)
        found = rows.decode_records(answer.body)
        return Record(key, *found[0][1:]) if found else None

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        space = RECORDS if prefix.startswith(RECORDS) else CHECKPOINTS
        given = {"prefix": prefix.removeprefix(space), "limit": str(limit)}
        if after:
            given["after"] = after.removeprefix(space)
        answer = self._request("GET", f"/v1/{space.rstrip('/')}?{urlencode(given)}", headers=ROWS)
        return [Record(space + name, value, revision) for name, value, revision in rows.decode_records(answer.body)]

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        while True:
            path = f"/v1/recorded?after={after}&up_to={up_to}&limit={PAGE_EVENTS}"
            found = rows.decode_recorded(self._request("GET", path, headers=ROWS).body)
            if not found:
                return
            page = [rows.recorded_from(row) for row in found]
            yield page
            after = page[-1].last

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        body = rows.encode((rows.stored_rows(events), [rows.recorded_row(append) for append in appends]))
        try:
            self._request("POST", "/v1/restore", body, ROWS, repeat_lost=False)
        except Lost as error:
            if self.head() < events[-1].position:  # a restore is stored as a whole, and nothing else is above it
                raise _unknown(error) from error

    def close(self) -> None:
        self._closed = True
        self.interrupt()
        self._transport.close()

    def _rest(
        self, events: Sequence[SequencedEvent], query: Query, after: int, up_to: int, limit: int | None, backwards: bool
    ) -> Iterator[Sequence[SequencedEvent]]:
        while True:
            limit = None if limit is None else limit - len(events)
            if backwards:
                up_to = events[-1].position - 1
            else:
                after = events[-1].position
            page = self._page(query, after, up_to, limit, backwards)
            events = [rows.stored_from(row) for row in page.events]
            if events:
                yield events
            if not page.more or not events:
                return

    def _page(self, query: Query, after: int, up_to: int | None, limit: int | None, backwards: bool) -> rows.PageRow:
        row = rows.ReadRow(
            rows.query_row(query), to_wire(after), None if up_to is None else to_wire(up_to), limit, backwards
        )
        return rows.decode_page(self._request("POST", "/v1/read", rows.encode(row), ROWS).body)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        repeat_lost: bool = True,
    ) -> Answer:
        """The answer to a request, which is sent again if it changes nothing or the server has not seen it.

        With `repeat_lost=False`, for a request that may change the store, `Lost` is raised if it is unknown whether it
        did.
        """
        deadline = monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            if self._closed:
                raise StoreClosed("the store is closed")
            try:
                return self._checked(self._transport.request(method, path, body, headers, timeout_s=TIMEOUT_S))
            except (NotSent, Busy, Lost) as error:
                if isinstance(error, Lost) and not repeat_lost:
                    raise
                if monotonic() + pause_s > deadline:
                    raise
                pause(max(pause_s, error.retry_after_s if isinstance(error, Busy) else 0))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _of_first_try(self, verdict: Verdict, append: Append, seen: int) -> Verdict:
        """The verdict on an append that was sent again, as if its first try had been answered."""
        if isinstance(verdict, Behind) and not append.events and verdict.current == verdict.position:
            return Placed(seen, seen)
        if not (isinstance(verdict, Placed) and verdict.already and append.events and verdict.first > seen):
            return verdict
        if append.records:  # the new revisions are lost with the first answer: the caller has to read the records
            return verdict
        if append.unless is not None:  # the event that is there may be another client's, which matches `unless`
            found = self._page(Query.all(), verdict.first - 1, verdict.first, 1, False).events
            if not found or rows.stored_from(found[0]).id != append.events[0].id:
                return verdict
        return Placed(verdict.first, verdict.last)  # stored by this call: it was not there when the call began

    def _checked(self, answer: Answer) -> Answer:
        """The answer, if it is a success; otherwise the error that it stands for."""
        if answer.status < 300 and answer.media_type in (rows.MEDIA_TYPE, JSON):
            return answer
        if answer.status < 300 or answer.media_type != PROBLEM:
            # A gateway answers in the server's place. The server may have carried the request out.
            raise Lost(f"{self._transport.server} answered {answer.status}, not as a Fencepost server does")
        try:
            given = _parse_problem(answer.body)
        except msgspec.MsgspecError as error:
            raise Lost(f"{self._transport.server}: the answer cannot be decoded: {error}") from None
        if answer.status in (429, 503) and given.outcome != "unknown":
            raise Busy(given.detail, answer.headers.get("Retry-After"))
        raise error_from(given)


class Busy(StoreUnavailable):
    """The server refused the request before it did anything, and says when to try again."""

    def __init__(self, detail: str, retry_after: str | None) -> None:
        super().__init__(detail)
        self.retry_after_s = float(retry_after) if retry_after and retry_after.isdigit() else 0.0


def _requests(appends: Sequence[Append]) -> Iterator[Sequence[Append]]:
    """The batch in parts that each fit into a request."""
    part: list[Append] = []
    size = 0
    for append in appends:
        append_bytes = sum([len(event.data) for event in append.events])
        append_bytes += sum([len(change.value) for change in append.records if isinstance(change, Put)])
        if part and size + append_bytes > REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(append)
        size += append_bytes
    yield part


def _is_repeatable(append: Append) -> bool:
    """Whether the append can be sent again without being stored twice: by its ids, or because a checkpoint grows.

    A change of a record that is sent again would be refused because of itself, so it needs events with ids.
    """
    return all(event.id is not None for event in append.events) and bool(append.events or not append.records)


def _unknown(error: StoreError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the append's outcome is unknown: {error}; append again with the same event ids, which stores it once, or "
        "read the records that it changes"
    )
