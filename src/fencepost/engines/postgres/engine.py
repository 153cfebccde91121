"""The engine: batches to the server, pages of events back, and what to do when the server is away.

A batch is one call of the function `append_batch`, or `append_one`, and one transaction, which takes the store's
lock, judges, stores and commits; so a batch costs one round trip and one sync. A large one, or a large append, is sent
in parts, several calls in one transaction, which bounds the memory on both sides. It is one transaction in any case, so
that a batch that fails is stored in no part: everybody in it is told of the failure.

Reading is paged by position and holds no transaction open between two pages. That is consistent
without a snapshot, since nothing is ever stored at or below a head that was seen.

When the server cannot be reached, reads and appends are tried again for `patience_s`. When the connection
ends in the middle of a commit, its fate is unknown: it is settled by appending once more where all
events of the batch have ids, and reported where they have not, or where that fails as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg

from ...commit import Append, Verdict, records_of
from ...errors import InvalidInput, StoreClosed, StoreError, StoreUnavailable
from ...model import Placed, Query, RecordedAppend, SequencedEvent
from .addresses import parted
from .awaiting import Awaiting
from .calls import NOT_PREPARED, Arguments, Call
from .connections import Connections, Session
from .faults import Lost, Unreachable, translate
from .install import DEFAULT_SCHEMA, check_version, install, quoted
from .listening import Listener
from .load import restore
from .paging import Paging
from .recording import PAGE_APPENDS, Records
from .sending import sent
from .wire import (
    FORMATS_OF_ONE,
    LAST_POSITION,
    decode_part,
    decode_verdicts,
    encode_batch,
    encode_one,
    encode_part,
    is_one,
)

Result = TypeVar("Result")

PART_EVENTS: Final = 4_096  # sent in one call
PART_BYTES: Final = 8 * 2**20  # likewise, unless one event alone is larger
AWAITED_EVENTS: Final = 256  # more would hold up the event loop: to encode so many appends takes 3 ms
AWAITED_BYTES: Final = 2**20
RETRY_S: Final = 0.1

OPTIONS: Final[dict[str, Callable[[str], object]]] = {
    "schema": str,
    "create": lambda text: text == "true",
    "connections": int,
    "patience_s": float,
    "record_conditions": lambda text: text == "true",
}


class PostgresEngine:
    """A store in one schema of a PostgreSQL database.

    `create` makes the store if it is not there. `connections` is how many this process uses at most,
    besides one for subscriptions; `listen_url` leads that one around a pooler, to the server itself.
    """

    group_commit: Final = True

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        create: bool = False,
        connections: int = 8,
        patience_s: float = 10.0,
        listen_url: str | None = None,
        record_conditions: bool = False,
    ) -> None:
        if connections < 1:
            raise InvalidInput("connections", f"at least 1 is needed, not {connections}")
        name = quoted(schema)
        self._patience_s = patience_s
        self._append_batch = Call(f"SELECT {name}.append_batch($1, $2, $3)::text")
        # In a transaction of several calls none may fail because a pooler has forgotten what was prepared.
        self._append_part = Call(f"SELECT {name}.append_batch($1, $2, $3)::text")
        self._append_part.prepares = False
        self._append_one = Call(f"SELECT {name}.append_one($1, $2, $3, $4, $5, $6, $7)", FORMATS_OF_ONE)
        self._name = name
        self._records = Records(name)
        self._records_conditions = record_conditions
        self._page = Call(f"SELECT * FROM {name}.page($1, $2, $3, $4, $5, $6)")
        self._head = f"SELECT coalesce(max(position), 0) FROM {name}.event".encode()
        self._has_id = f"SELECT EXISTS (SELECT FROM {name}.event WHERE id = %s)".encode()
        self._checkpoint = f"SELECT position FROM {name}.checkpoint WHERE name = %s".encode()
        self._connections = Connections(url, most=connections, patience_s=patience_s)
        self._awaiting = Awaiting(self._connections, max(1, connections // 2))
        self._closed = False
        if create:
            install(url, schema)
        listening = self._connections if listen_url is None else Connections(listen_url, most=1, patience_s=patience_s)
        channel, head = self._open(schema), self._read_head()
        self._listener = Listener(listening.connect, channel, self._head)
        self._listener.saw(head)  # an append that is sent again and found below it is from before

    @classmethod
    def from_url(cls, address: str, **options: object) -> PostgresEngine:
        """The options may be in the URL as well, among those of PostgreSQL: `...?schema=wallets`."""
        url, given = parted(address, OPTIONS)
        for option, value in given.items():
            try:
                options.setdefault(option, OPTIONS[option](value))
            except ValueError:
                raise InvalidInput(option, f"{value!r} is no number") from None
        return cls(url, **options)  # type: ignore[arg-type]

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return self._settle(appends, self._listener.seen)

    async def commit_awaiting(self, appends: Sequence[Append]) -> Sequence[Verdict] | None:
        if self._records_conditions or not _are_quick(appends):
            return None
        known = self._listener.seen
        call, arguments = self._request(appends)
        try:
            answer = await sent(self._connections, call, arguments)
        except psycopg.Error as error:
            if (error.sqlstate or "").encode() in NOT_PREPARED:
                return None
            fault = translate(error)
            if not isinstance(fault, Lost):
                raise fault from error
            _check_fate(appends, fault)
            return await asyncio.to_thread(self._settle, appends, known, lost=True)
        return None if answer is None else self._decoded(appends, answer)

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if after < upto and limit != 0:
            paging = Paging(self._page, query, after=after, upto=upto, limit=limit, backwards=backwards, reached=upto)
            yield from self._pages(paging)

    def begin(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]]]:
        paging = self._paging(query, after=after, upto=upto, limit=limit, backwards=backwards)
        page = self._read_page(paging)
        return paging.reach, self._pages(paging, page)

    async def begin_awaiting(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]], bool] | None:
        paging = self._paging(query, after=after, upto=upto, limit=limit, backwards=backwards)
        rows = await self._awaiting.rows(*paging.request())
        if rows is None:
            return None
        page = paging.receive(rows)
        return paging.reach, self._pages(paging, page), paging.ended

    def head(self) -> int:
        return self._patiently(self._read_head)

    def wait(self, after: int, timeout_s: float) -> int:
        return self._listener.wait(after, timeout_s)

    def interrupt(self) -> None:
        self._listener.interrupt()

    def checkpoint(self, name: str) -> int:
        return self._patiently(lambda: self._read_checkpoint(name))

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self._connections.close()

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        def read() -> list[RecordedAppend]:
            with self._connections.lend() as connection:
                return self._records.page(connection, after, min(upto, LAST_POSITION))

        while after < upto:
            page = self._patiently(read)
            if page:
                yield page
            after = page[-1].last if len(page) == PAGE_APPENDS else upto

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self._connections.session() as session, session.connection.transaction():
            restore(session.connection, self._name, events)
            self._records.keep(session, appends)
        self._listener.saw(events[-1].position)

    def _open(self, schema: str) -> str:
        """Refuse what is no store of this version; else the name of the channel of its notifications."""
        with self._connections.lend() as connection:
            check_version(connection, schema)
            row = connection.execute("SELECT %s::regclass::oid", [f"{quoted(schema)}.event"]).fetchone()
            assert row is not None
            return f"fencepost_{row[0]}"

    def _commit_at_once(self, appends: Sequence[Append]) -> list[Verdict]:
        if self._records_conditions or not _fit_one_call(appends):
            return self._commit_in_calls(appends)
        call, arguments = self._request(appends)
        with self._connections.session() as session:
            answer = call.value(session, arguments)
        return self._decoded(appends, answer)

    def _request(self, appends: Sequence[Append]) -> tuple[Call, Arguments]:
        if is_one(appends):
            return self._append_one, encode_one(appends[0])
        return self._append_batch, encode_batch(appends)

    def _commit_in_calls(self, appends: Sequence[Append]) -> list[Verdict]:
        """Several calls, one transaction."""
        verdicts: list[Verdict] = []
        with self._connections.session() as session, session.connection.transaction():
            for batch in _batches(appends):
                if _is_large(batch[0]):
                    verdicts.append(self._place_in_parts(session, batch[0]))
                else:
                    verdicts += decode_verdicts(batch, self._append_part.value(session, encode_batch(batch)))
            if self._records_conditions:
                self._records.keep(session, records_of(appends, verdicts))
        return self._seen(verdicts)

    def _decoded(self, appends: Sequence[Append], answer: bytes) -> list[Verdict]:
        return self._seen(decode_verdicts(appends, answer))

    def _seen(self, verdicts: list[Verdict]) -> list[Verdict]:
        self._listener.saw(max((v.last for v in verdicts if isinstance(v, Placed)), default=0))
        return verdicts

    def _place_in_parts(self, session: Session, append: Append) -> Verdict:
        """The first part is judged, with all conditions and ids; the others follow under the same lock."""
        first = last = 0
        for begin, end in _parts(append):
            answer = self._append_part.value(session, encode_part(append, begin, end))
            judged = decode_part(append, begin, end, answer)
            if not isinstance(judged, Placed) or judged.already:
                assert begin == 0
                return judged
            assert last in (0, judged.first - 1)
            first, last = first or judged.first, judged.last
        return Placed(first, last)

    def _paging(self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool) -> Paging:
        """A reading up to the head, or to `upto` if that is lower, before its first page."""
        asked = LAST_POSITION if upto is None else upto
        return Paging(self._page, query, after=after, upto=asked, limit=limit, backwards=backwards)

    def _pages(self, paging: Paging, page: Sequence[SequencedEvent] = ()) -> Iterator[Sequence[SequencedEvent]]:
        """The page, if it was read already, and those that follow on it."""
        if page:
            yield page
        while not paging.ended:
            page = self._read_page(paging)
            if page:
                yield page

    def _read_page(self, paging: Paging) -> list[SequencedEvent]:
        call, arguments = paging.request()

        def read() -> list[tuple[Any, ...]]:
            with self._connections.session() as session:
                return call.rows(session, arguments)

        return paging.receive(self._patiently(read))

    def _read_head(self) -> int:
        with self._connections.lend() as connection:
            row = connection.execute(self._head).fetchone()
        assert row is not None
        return int(row[0])

    def _read_checkpoint(self, name: str) -> int:
        with self._connections.lend() as connection:
            row = connection.execute(self._checkpoint, [name]).fetchone()
        return 0 if row is None else int(row[0])

    def _settle(self, batch: Sequence[Append], known: int, *, lost: bool = False) -> Sequence[Verdict]:
        """Commit, and where the acknowledgement is lost, find out by the ids what became of it.

        `known` is a head from before; with `lost` the batch was sent already, once, and its acknowledgement lost.
        """

        def attempt() -> Sequence[Verdict]:
            nonlocal lost
            try:
                return self._commit_at_once(batch)
            except Lost as error:
                lost = True
                _check_fate(batch, error)
                raise

        try:
            verdicts = self._patiently(attempt)
            return self._own(batch, verdicts, known) if lost else verdicts
        except StoreError as error:
            if lost and _have_ids(batch):
                raise _unsettled(error) from error
            raise

    def _own(self, batch: Sequence[Append], verdicts: Sequence[Verdict], known: int) -> Sequence[Verdict]:
        """What to say of appends that were sent twice: found above the head that was known before, one was stored now.

        Of several with the same id it was the first. And what `unless` has found is somebody else's.
        """
        told = []
        stored: set[UUID | None] = set()
        for append, verdict in zip(batch, verdicts, strict=True):
            ids = {event.id for event in append.events}
            if isinstance(verdict, Placed):
                if verdict.already and verdict.first > known and stored.isdisjoint(ids) and self._found_by_id(append):
                    verdict = Placed(verdict.first, verdict.last)
                stored |= ids
            told.append(verdict)
        return told

    def _found_by_id(self, append: Append) -> bool:
        """Whether an append that is stored already was found by its ids, and not by its `unless`."""

        def ask() -> bool:
            with self._connections.lend() as connection:
                return connection.execute(self._has_id, [append.events[0].id]).fetchone() == (True,)

        return append.unless is None or self._patiently(ask)

    def _patiently(self, act: Callable[[], Result]) -> Result:
        """Again and again while the server cannot be reached. Only for what may be done twice."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return act()
            except (Lost, Unreachable):
                if time.monotonic() >= deadline or self._closed:
                    raise
                time.sleep(RETRY_S)


def _check_fate(batch: Sequence[Append], fault: Lost) -> None:
    """Refuse to try again what cannot be told apart from what may be stored already."""
    if not _have_ids(batch):
        raise StoreUnavailable(
            f"{fault}; the append is stored whole or not at all, and without event ids nobody can say which: "
            "read before appending again"
        ) from fault


def _have_ids(batch: Sequence[Append]) -> bool:
    return all(append.events and append.events[0].id is not None for append in batch)


def _unsettled(fault: StoreError) -> StoreError:
    """What to say when a commit's answer was lost and it could not be found out what became of it."""
    kind = StoreUnavailable if isinstance(fault, (StoreUnavailable, StoreClosed)) else type(fault)
    return kind(
        f"{fault}; the answer to an earlier try was lost, so the append is stored whole or not at all: "
        "append again with the same ids, which settles it"
    )


def _batches(appends: Sequence[Append]) -> Iterator[list[Append]]:
    """The appends, in order, cut so that a call stays small. A large one is alone."""
    batch: list[Append] = []
    size = 0
    for append in appends:
        own = sum(len(event.data) for event in append.events)
        if batch and (size + own > PART_BYTES or _is_large(append)):
            yield batch
            batch, size = [], 0
        batch.append(append)
        size += own
        if _is_large(append):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _fit_one_call(appends: Sequence[Append]) -> bool:
    sizes = [len(event.data) for append in appends for event in append.events]
    return len(sizes) <= PART_EVENTS and sum(sizes) <= PART_BYTES


def _is_large(append: Append) -> bool:
    return len(append.events) > PART_EVENTS or sum(len(event.data) for event in append.events) > PART_BYTES


def _are_quick(appends: Sequence[Append]) -> bool:
    """Whether they are encoded in no time."""
    sizes = [len(event.data) for append in appends for event in append.events]
    return len(sizes) <= AWAITED_EVENTS and sum(sizes) <= AWAITED_BYTES


def _parts(append: Append) -> Iterator[tuple[int, int]]:
    """Where to cut a large append."""
    begin = size = 0
    for index, event in enumerate(append.events):
        size += len(event.data)
        if index > begin and (index - begin == PART_EVENTS or size > PART_BYTES):
            yield begin, index
            begin, size = index, len(event.data)
    yield begin, len(append.events)
