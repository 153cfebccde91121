"""The PostgreSQL engine: what the core asks of a storage, answered by a store in one schema of a database.

committer.py commits batches, paged_read.py reads pages, listener.py waits for appends of other processes.

A read is paged by position and holds no transaction open between two pages. That is consistent without a snapshot,
because nothing is ever stored at or below a head that was seen. tests/postgres/test_contract.py holds the engine to
the contract of all engines.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...core.engine import Capability, InThread, ReadStart
from ...core.record_keys import key_range
from ...core.verdicts import Append, Verdict
from ...errors import InvalidInput
from ...model import Query, Record, RecordedAppend, SequencedEvent
from .committer import Committer
from .connection_pool import ConnectionPool
from .install import DEFAULT_SCHEMA, check_version, install, quoted
from .listener import Listener
from .load import restore
from .paged_read import PagedRead
from .read_pipeline import ReadPipeline
from .recorded_appends import PAGE_APPENDS, RecordedAppends
from .seen_log import SeenLog, Witness
from .statement import Statement
from .wire import LAST_POSITION


class PostgresEngine:
    """A store in one schema of a PostgreSQL database.

    `create` makes the store if it does not exist. `connections` is the maximum for this process, besides one for
    subscriptions. `listen_url` is an address for that one, if it must bypass a pooler.
    """

    capabilities: Final = (
        Capability.GROUP_COMMIT
        | Capability.BEGIN
        | Capability.ASYNC_READ
        | Capability.ASYNC_COMMIT
        | Capability.RECORDED_APPENDS
        | Capability.RESTORE
    )

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
        name = self._name = quoted(schema)
        self._page = Statement(f"SELECT * FROM {name}.page($1, $2, $3, $4, $5, $6)")
        self._record = f"SELECT name, value, revision FROM {name}.record WHERE name = %s".encode()
        self._record_page = (
            f"SELECT name, value, revision FROM {name}.record WHERE name >= %s AND name < %s ORDER BY name LIMIT %s"
        ).encode()
        self._recorded = RecordedAppends(name)
        self.pool = ConnectionPool(url, limit=connections, patience_s=patience_s)
        self._pipeline = ReadPipeline(self.pool, self._page, limit=max(1, connections // 2))
        if create:
            install(url, schema)
        listening = self.pool if listen_url is None else ConnectionPool(listen_url, limit=1, patience_s=patience_s)
        self._seen = SeenLog(name)
        self.pool.on_connect = listening.on_connect = self._seen.check
        try:
            channel, last = self._open(schema), self._read_head()
        except BaseException:
            self.pool.close()
            raise
        self.listener = Listener(listening.connect, channel, self._seen)
        self.listener.advance(last.position, last)  # a repeated append that is found below was stored before
        self._committer = Committer(name, self.pool, self.listener, self._recorded if record_conditions else None)
        self._finalizer = weakref.finalize(self, _abandon, schema, self.pool, self.listener)
        self._finalizer.atexit = False  # the end of the process closes everything, and must not wait for a server

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return self._committer.commit(appends)

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        return await self._committer.commit_async(appends, in_thread)

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if after < up_to and limit != 0:
            read = PagedRead(query, after=after, up_to=up_to, limit=limit, backwards=backwards, seen_head=up_to)
            yield from self._pages(read)

    def begin(self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool) -> ReadStart:
        read = self._paged_read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        return self._begun(read, self._read_page(read))

    async def begin_async(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        read = self._paged_read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        rows = await self._pipeline.rows(read.arguments())
        page = await in_thread(self._read_page, read) if rows is None else read.receive(rows)
        begun = self._begun(read, page)
        return begun if begun.page or begun.rest is None else await in_thread(begun.with_first_page)

    def head(self) -> int:
        return self.pool.retry(self._read_head).position

    def wait(self, after: int, timeout_s: float) -> int:
        self.pool.owner.check()  # only the parent has the thread that listens
        return self.listener.wait(after, timeout_s)

    def interrupt(self) -> None:
        self.listener.interrupt()

    def record(self, key: str) -> Record | None:
        rows = self.pool.rows(self._record, [key])
        return Record(*rows[0]) if rows else None

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        rows = self.pool.rows(self._record_page, [*key_range(prefix, after), limit])
        return [Record(*row) for row in rows]

    def close(self) -> None:
        self._finalizer.detach()
        if self.pool.owner.is_this_process:
            self.pool.close()
            self.listener.close()

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        while after < up_to:
            page = self._recorded.page(self.pool, after, min(up_to, LAST_POSITION))
            if page:
                yield page
            after = page[-1].last if len(page) == PAGE_APPENDS else up_to

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self.pool.connection() as connection, connection.transaction():
            restore(connection, self._name, events, patience_s=self.pool.patience_s)
            self._recorded.restore(connection, appends)
        self.listener.advance(events[-1].position)

    def _open(self, schema: str) -> str:
        """Check the version of the store and return the name of its notification channel."""
        with self.pool.connection() as connection:
            check_version(connection, schema)
            row = connection.execute("SELECT %s::regclass::oid", [f"{self._name}.event"]).fetchone()
            assert row is not None
            return f"fencepost_{row[0]}"

    def _paged_read(
        self, query: Query, *, after: int, up_to: int | None, limit: int | None, backwards: bool
    ) -> PagedRead:
        """A reading up to the head, or up to `up_to` if that is lower."""
        last = LAST_POSITION if up_to is None else up_to
        return PagedRead(query, after=after, up_to=last, limit=limit, backwards=backwards, seen_head=self._seen.head)

    def _begun(self, read: PagedRead, page: Sequence[SequencedEvent]) -> ReadStart:
        return ReadStart(read.reach, page, None if read.ended else self._pages(read))

    def _pages(self, read: PagedRead) -> Iterator[Sequence[SequencedEvent]]:
        """The pages that have not been read yet."""
        while not read.ended:
            page = self._read_page(read)
            if page:
                yield page

    def _read_page(self, read: PagedRead) -> list[SequencedEvent]:
        arguments = read.arguments()

        def rows() -> list[tuple[Any, ...]]:
            with self.pool.borrow() as pooled:
                return self._page.rows(pooled, arguments)

        return read.receive(self.pool.retry(rows))

    def _read_head(self) -> Witness:
        with self.pool.connection() as connection:
            return self._seen.read_head(connection)


def _abandon(schema: str, pool: ConnectionPool, listener: Listener) -> None:
    """Release the resources of a store that was dropped without `close`. In a forked child they are the parent's."""
    if pool.owner.is_this_process:
        listener.abandon()
        pool.abandon()
        warnings.warn(f"the store in the schema {schema!r} was not closed", ResourceWarning, stacklevel=2)
