"""What each path of the interface does: checks access, narrows to the caller's scope, asks the store, answers.

A handler takes a request and the caller's `Access`, and returns an answer or raises. `app` turns what is raised into
problem+json. Requests in the msgpack form come from Fencepost's own client; both forms lead to the same calls. What may
be large is encoded and decoded by a thread, so that it does not hold up other callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from .. import Delete, Placed, Put, Query, Record, SequencedEvent
from ..engine import CHECKPOINTS, RECORDS, Append, checked_position, engine_of, recorded, restore
from ..errors import FencepostError, InvalidInput
from ..tools import document_of, from_wire, to_wire
from . import metrics
from .access import Access, Right
from .admission import Admission, AppendFailed, Refused, index_of
from .request import (
    NDJSON,
    Answer,
    Request,
    Stream,
    answer_json,
    answer_problem,
    encode_json,
    is_tagged,
    number_parameter,
    position_parameter,
)
from .streams import LOOK_S, Reading, Streams
from .wire import documents, rows
from .wire.problems import NO_SUCH_RECORD, UNAUTHENTICATED, problem, problem_of

Decoded = TypeVar("Decoded")

PAGE_EVENTS: Final = 4_096
PAGE_BYTES: Final = 8_000_000  # of data in one page; at least one event is in it
PAGE_RECORDS: Final = 128  # of at most 64 KiB each
MAX_BATCH_APPENDS: Final = 4_096


@dataclass
class Handlers:
    _admission: Admission
    _streams: Streams

    async def append(self, request: Request, access: Access) -> Answer:
        access.check(Right.APPEND)
        body = await request.body()
        append = await self._admission.run_codec(
            len(body), lambda: documents.append_from(documents.parsed(body, documents.AppendDocument))
        )
        outcome = await self._admission.place(access, append)
        if isinstance(outcome, Placed):
            first, last = to_wire(outcome.first), to_wire(outcome.last)
            return answer_json(documents.PlacedDocument(first, last, outcome.already, outcome.revisions))
        return answer_problem(problem_of(outcome, condition=index_of(outcome)))

    async def append_batch(self, request: Request, access: Access) -> Answer:
        """Several appends, each on its own: each is stored or refused as a whole."""
        access.check(Right.APPEND)
        body = await request.body()
        appends = await self._admission.run_codec(len(body), lambda: decoded(body, rows.decode_appends))
        if len(appends) > MAX_BATCH_APPENDS:
            raise InvalidInput("appends", f"{len(appends)} appends, the limit of one request is {MAX_BATCH_APPENDS}")
        self._admission.metrics.add(metrics.BATCH, amount=len(appends))
        outcomes = await asyncio.gather(*[self._append_row(row, access) for row in appends])
        return Answer(200, rows.encode(outcomes), rows.MEDIA_TYPE)

    async def _append_row(self, row: rows.AppendRow, access: Access) -> rows.OutcomeRow:
        outcome: Placed | FencepostError
        try:
            outcome = await self._admission.place(access, rows.append_from(row))
        except AppendFailed as error:
            failed = rows.FailedRow(problem_of(error.cause))
            failed.problem.outcome, failed.problem.retryable = "unknown", False
            return failed
        except FencepostError as error:
            outcome = error
        return rows.outcome_row(outcome, condition=index_of(outcome))

    async def read(self, request: Request, access: Access) -> Answer | Stream:
        """A page of events, or all of them as NDJSON."""
        access.check(Right.READ)
        in_rows = request.media_type == rows.MEDIA_TYPE
        wanted = await self._reading(request, access, in_rows=in_rows)
        if not in_rows and request.accepts(NDJSON):
            return Stream(self._streams.reading(wanted, access), NDJSON)
        reach, events, more, size = await self._page(request, wanted, access)
        if access.scope.is_limited:  # as far as the caller may know: the last event inside
            reach = await self._admission.head_of(access, reach)

        def encoded() -> bytes:
            if in_rows:
                return rows.encode(rows.PageRow(to_wire(reach), rows.stored_rows(events), more))
            page = [document_of(event) for event in events]
            return encode_json({"events": page, "head": to_wire(reach), "more": more})

        body = await self._admission.run_codec(size, encoded)
        request.room.free_memory()
        request.room.reserve(len(body))
        return Answer(200, body, rows.MEDIA_TYPE) if in_rows else Answer(200, body)

    async def _page(
        self, request: Request, wanted: Reading, access: Access
    ) -> tuple[int, list[SequencedEvent], bool, int]:
        events: list[SequencedEvent] = []
        size = reach = 0
        async for reach, page in self._streams.pages(wanted, access):
            events += page
            taken = sum([len(event.data) for event in page])
            request.room.reserve(taken)
            size += taken
            if len(events) >= PAGE_EVENTS or size >= PAGE_BYTES:
                return reach, events, wanted.limit is None or len(events) < wanted.limit, size
        return reach, events, False, size

    async def _reading(self, request: Request, access: Access, *, in_rows: bool = False) -> Reading:
        given: rows.ReadRow | documents.ReadDocument
        if in_rows:
            given = decoded(await request.body(), rows.decode_read)
            query: Query | None = rows.query_from(given.query)
        else:
            if request.method == "POST":
                given = documents.parsed(await request.body(), documents.ReadDocument)
            else:
                given = read_parameters(request)
            query = documents.query_from(given.query)
        after = checked_position(from_wire(given.after, "after"), "after")
        up_to = None if given.up_to is None else checked_position(from_wire(given.up_to, "up_to"), "up_to")
        if given.limit is not None and given.limit < 1:
            raise InvalidInput("limit", f"an int of at least 1 is needed, not {given.limit}")
        return Reading(access.scope.narrowed(query), after, up_to, given.limit, given.backwards)

    async def subscribe(self, request: Request, access: Access) -> Stream:
        """Events as they come: server-sent events, or NDJSON for a client that accepts it."""
        access.check(Right.READ)
        last_id = request.headers.get("last-event-id")
        wanted = await self._reading(request, access)
        if wanted.up_to is not None or wanted.limit is not None or wanted.backwards:
            raise InvalidInput("up_to", "a subscription takes query and after; it has no end, limit or direction")
        after = wanted.after
        if last_id is not None:
            after = checked_position(from_wire(last_id, "Last-Event-ID"), "Last-Event-ID")
        return self._streams.subscription(request, access, wanted.query, after, as_lines=request.accepts(NDJSON))

    async def head(self, request: Request, access: Access) -> Answer:
        """The head; with `wait_s`, as soon as it is above `after`."""
        access.check(Right.READ)
        after = position_parameter(request, "after") or 0
        wait_s = min(number_parameter(request, "wait_s", 0.0), self._admission.settings.max_wait_s)
        head = await self._admission.head_of(access)
        if head <= after and wait_s > 0:
            request.room.enter(self._admission.subscriptions)
            with self._streams.opened(access, self._admission.heads.head):
                async with request.while_connected():
                    head = await self._head_above(access, head, after, wait_s)
        tag = f'"{head}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if is_tagged(request.headers.get("if-none-match", ""), tag):
            return Answer(304, headers=headers)
        return answer_json({"head": to_wire(head)}, headers=headers)

    async def _head_above(self, access: Access, head: int, after: int, wait_s: float) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        newest = head
        while head <= after and (rest_s := deadline - loop.time()) > 0 and not self._admission.draining:
            newest = await self._admission.heads.above(max(newest, after), min(rest_s, LOOK_S))
            if not self._admission.is_valid(access):
                raise Refused(UNAUTHENTICATED, "the API key was revoked, was changed or has expired")
            head = newest if not access.scope.is_limited else await self._admission.head_of(access)
        return head

    async def checkpoint(self, request: Request, access: Access) -> Answer:
        access.check(Right.READ)
        name = request.places["name"]
        position = await self._admission.store.checkpoint(access.stored_name(name, "checkpoint"))
        return answer_json({"name": name, "position": to_wire(position)})

    async def checkpoints(self, request: Request, access: Access) -> Answer:
        found, more = await self._listed(request, access, CHECKPOINTS)
        if request.accepts(rows.MEDIA_TYPE):
            return Answer(200, rows.encode([rows.record_row(record) for record in found]), rows.MEDIA_TYPE)
        positions = [{"name": record.name, "position": to_wire(int(record.value))} for record in found]
        return answer_json({"checkpoints": positions, "more": more})

    async def records(self, request: Request, access: Access) -> Answer:
        found, more = await self._listed(request, access, RECORDS)
        if request.accepts(rows.MEDIA_TYPE):
            return Answer(200, rows.encode([rows.record_row(record) for record in found]), rows.MEDIA_TYPE)
        return answer_json({"records": [documents.record_document(record) for record in found], "more": more})

    async def _listed(self, request: Request, access: Access, space: str) -> tuple[list[Record], bool]:
        """A page of the records, or checkpoints, that begin with `prefix` and come after `after`."""
        access.check(Right.READ)
        given = {name: texts[0] for name, texts in request.query.items()}
        if unknown := given.keys() - {"prefix", "after", "limit"}:
            raise InvalidInput(min(unknown), "unknown parameter; known are prefix, after, limit")
        limit = max(1, min(int(number_parameter(request, "limit", PAGE_RECORDS)), PAGE_RECORDS))
        own = space + access.own_names
        prefix, after = own + given.get("prefix", ""), own + given["after"] if "after" in given else ""
        found = await asyncio.to_thread(engine_of(self._admission.store).records, prefix, after=after, limit=limit + 1)
        named = [replace(record, name=record.name.removeprefix(own)) for record in found]
        return named[:limit], len(named) > limit

    async def record(self, request: Request, access: Access) -> Answer:
        access.check(Right.READ)
        name = request.places["name"]
        stored = await self._admission.store.records.get(access.stored_name(name))
        found = None if stored is None else access.visible(stored)
        if request.accepts(rows.MEDIA_TYPE):
            return Answer(200, rows.encode([] if found is None else [rows.record_row(found)]), rows.MEDIA_TYPE)
        if found is None:
            return answer_problem(problem(NO_SUCH_RECORD, f"there is no record {name!r}"))
        return answer_json(documents.record_document(found))

    async def put_record(self, request: Request, access: Access) -> Answer:
        access.check(Right.APPEND)
        given = documents.parsed(await request.body(), documents.PutDocument)
        return await self._change(access, Put(request.places["name"], given.value_base64, given.expected))

    async def delete_record(self, request: Request, access: Access) -> Answer:
        access.check(Right.APPEND)
        return await self._change(access, Delete(request.places["name"], int(number_parameter(request, "expected", 0))))

    async def _change(self, access: Access, change: Put | Delete) -> Answer:
        outcome = await self._admission.place(access, Append((), records=(change,)))
        if isinstance(outcome, Placed):
            return answer_json({"name": change.name, "revision": outcome.revisions[0]})
        return answer_problem(problem_of(outcome))

    async def recorded(self, request: Request, access: Access) -> Answer:
        """What appends were conditional on, page by page."""
        access.check(Right.READ)
        access.check_unlimited("this")
        after, up_to = position_parameter(request, "after") or 0, position_parameter(request, "up_to")
        limit = min(int(number_parameter(request, "limit", PAGE_EVENTS)), PAGE_EVENTS)
        store = self._admission.store.blocking
        found = await asyncio.to_thread(lambda: list(islice(recorded(store, after=after, up_to=up_to), limit)))
        if request.accepts(rows.MEDIA_TYPE):
            return Answer(200, rows.encode([rows.recorded_row(append) for append in found]), rows.MEDIA_TYPE)
        return answer_json({"appends": [documents.recorded_document(append) for append in found]})

    async def restore(self, request: Request, access: Access) -> Answer:
        """Take over another store's events with their positions."""
        access.check(Right.ADMIN)
        access.check_unlimited("a restore")
        body = await request.body()

        def restored() -> tuple[list[Any], list[Any]]:
            events, appends = decoded(body, rows.decode_restore)
            return [rows.stored_from(row) for row in events], [rows.recorded_from(row) for row in appends]

        taken = await self._admission.run_codec(len(body), restored)
        await asyncio.to_thread(restore, self._admission.store.blocking, *taken)
        return answer_json({"head": to_wire(await self._admission.store.head())})


def decoded(body: bytes, decode: Callable[[bytes], Decoded]) -> Decoded:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput("body", f"not a request that this server understands: {error}") from None
    except RecursionError:
        raise InvalidInput("body", "nested too deeply to be decoded") from None


def read_parameters(request: Request) -> documents.ReadDocument:
    """A reading from the parameters of a URL: `type` and `tag`, each any number of times, or `query` as JSON."""
    given = request.query
    unknown = given.keys() - {"type", "tag", "query", "after", "up_to", "limit", "backwards"}
    if unknown:
        raise InvalidInput(
            min(unknown), "unknown parameter; known are type, tag, query, after, up_to, limit, backwards"
        )
    query = None
    if "query" in given:
        if "type" in given or "tag" in given:
            raise InvalidInput("query", "give query, or type and tag, not both")
        query = documents.parsed(given["query"][0].encode(), documents.QueryDocument)
    elif "type" in given or "tag" in given:
        query = documents.QueryDocument([documents.ItemDocument(given.get("type", []), given.get("tag", []))])
    limit = given.get("limit", [None])[0]
    if limit is not None and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise InvalidInput("limit", f"a whole number is needed, not {limit!r:.80}")
    backwards = given.get("backwards", ["false"])[0]
    if backwards not in ("true", "false"):
        raise InvalidInput("backwards", f"true or false is needed, not {backwards!r:.80}")
    return documents.ReadDocument(
        query,
        given.get("after", ["0"])[0],
        given.get("up_to", [None])[0],
        None if limit is None else int(limit),
        backwards == "true",
    )
