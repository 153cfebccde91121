"""The PostgreSQL engine: what the core asks of a storage, answered by a store in one schema of a database.

committing.py commits batches, paging.py reads pages, listening.py waits for appends of other processes.

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
from ...core.judging import Append, Verdict
from ...errors import InvalidInput
from ...model import Query, RecordedAppend, SequencedEvent
from .calls import Call
from .committing import Committer
from .connections import Connections
from .install import DEFAULT_SCHEMA, check_version, install, quoted, read_head
from .listening import Listener
from .load import restore
from .paging import Paging
from .pipelining import PipelinedReads
from .recording import PAGE_APPENDS, Records
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
        | Capability.RECORD
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
        self._page = Call(f"SELECT * FROM {name}.page($1, $2, $3, $4, $5, $6)")
        self._checkpoint = f"SELECT position FROM {name}.checkpoint WHERE name = %s".encode()
        self._records = Records(name)
        self.connections = Connections(url, limit=connections, patience_s=patience_s)
        self.pipelined_reads = PipelinedReads(self.connections, limit=max(1, connections // 2))
        if create:
            install(url, schema, upgrade=False)
        listening = self.connections if listen_url is None else Connections(listen_url, limit=1, patience_s=patience_s)
        try:
            channel, head = self._open(schema), self._read_head()
        except BaseException:
            self.connections.close()
            raise
        self.listener = Listener(listening.connect, channel, name)
        self.listener.advance(head)  # a repeated append that is found below this head was stored before
        self._committer = Committer(name, self.connections, self.listener, self._records if record_conditions else None)
        self._finalizer = weakref.finalize(self, _abandon, schema, self.connections, self.listener)
        self._finalizer.atexit = False  # the end of the process closes everything, and must not wait for a server

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return self._committer.commit(appends)

    async def commit_async(self, appends: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        return await self._committer.commit_async(appends, in_thread)

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if after < upto and limit != 0:
            paging = Paging(query, after=after, upto=upto, limit=limit, backwards=backwards, required_head=upto)
            yield from self._pages(paging)

    def begin(self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool) -> ReadStart:
        paging = _paging(query, after=after, upto=upto, limit=limit, backwards=backwards)
        return self._begun(paging, self._read_page(paging))

    async def begin_async(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool, in_thread: InThread
    ) -> ReadStart:
        paging = _paging(query, after=after, upto=upto, limit=limit, backwards=backwards)
        rows = await self.pipelined_reads.rows(self._page, paging.arguments())
        page = await in_thread(self._read_page, paging) if rows is None else paging.receive(rows)
        begun = self._begun(paging, page)
        return begun if begun.page or begun.rest is None else await in_thread(begun.with_first_page)

    def head(self) -> int:
        return self.connections.retry(self._read_head)

    def wait(self, after: int, timeout_s: float) -> int:
        self.connections.owner.check()  # only the parent has the thread that listens
        return self.listener.wait(after, timeout_s)

    def interrupt(self) -> None:
        self.listener.interrupt()

    def checkpoint(self, name: str) -> int:
        rows = self.connections.rows(self._checkpoint, [name])
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        self._finalizer.detach()
        if self.connections.owner.is_this_process:
            self.connections.close()
            self.listener.close()

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        while after < upto:
            page = self._records.page(self.connections, after, min(upto, LAST_POSITION))
            if page:
                yield page
            after = page[-1].last if len(page) == PAGE_APPENDS else upto

    def restore(self, events: Sequence[SequencedEvent], appends: Sequence[RecordedAppend] = ()) -> None:
        with self.connections.connection() as connection, connection.transaction():
            restore(connection, self._name, events)
            self._records.restore(connection, appends)
        self.listener.advance(events[-1].position)

    def _open(self, schema: str) -> str:
        """Check the version of the store and return the name of its notification channel."""
        with self.connections.connection() as connection:
            check_version(connection, schema)
            row = connection.execute("SELECT %s::regclass::oid", [f"{self._name}.event"]).fetchone()
            assert row is not None
            return f"fencepost_{row[0]}"

    def _begun(self, paging: Paging, page: Sequence[SequencedEvent]) -> ReadStart:
        return ReadStart(paging.reach, page, None if paging.ended else self._pages(paging))

    def _pages(self, paging: Paging) -> Iterator[Sequence[SequencedEvent]]:
        """The pages that have not been read yet."""
        while not paging.ended:
            page = self._read_page(paging)
            if page:
                yield page

    def _read_page(self, paging: Paging) -> list[SequencedEvent]:
        arguments = paging.arguments()

        def read() -> list[tuple[Any, ...]]:
            with self.connections.session() as session:
                return self._page.rows(session, arguments)

        return paging.receive(self.connections.retry(read))

    def _read_head(self) -> int:
        with self.connections.connection() as connection:
            return read_head(connection, self._name)


def _paging(query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool) -> Paging:
    """A reading up to the head, or up to `upto` if that is lower."""
    bound = LAST_POSITION if upto is None else upto
    return Paging(query, after=after, upto=bound, limit=limit, backwards=backwards)


def _abandon(schema: str, connections: Connections, listener: Listener) -> None:
    """Release the resources of a store that was dropped without `close`. In a forked child they are the parent's."""
    if connections.owner.is_this_process:
        listener.abandon()
        connections.abandon()
        warnings.warn(f"the store in the schema {schema!r} was not closed", ResourceWarning, stacklevel=2)
