"""What a transaction knows before it commits: its read version, own writes, conflict ranges and calls under way.

A timeout counts from the creation of the transaction or its last `reset`, across all retries. Operations on a
transaction whose commit is under way fail, and so does that commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .api import Options
from .errors import TRANSACTION_CANCELLED, TRANSACTION_TIMED_OUT, USED_DURING_COMMIT, FDBError
from .futures import Future, Value
from .mutations import Range
from .own_writes import OwnWrites

if TYPE_CHECKING:
    from .cluster import SimulatedCluster

RANGE_OVERHEAD_BYTES: Final = 24

Asked = TypeVar("Asked", bound=Future[Any])


class State:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.watches: list[tuple[bytes, Value, Future[None]]] = []
        self.stamps: list[Value] = []
        self._outstanding: list[tuple[Future[Any], bool]] = []
        self.reset()

    def reset(self) -> None:
        self.clear(Options())
        self.retries = 0
        self._created_at_s = self.cluster.now_s

    def clear(self, options: Options) -> None:
        """As new, except for the number of retries and the time that counts for a timeout."""
        self.abandon(FDBError(TRANSACTION_CANCELLED))
        self.options = options
        self.own = OwnWrites()
        self.reads: list[Range] = []
        self.writes: list[Range] = []
        self.read_version: int | None = None
        self.size = 0
        self.cancelled = False
        self.committing = False
        self.misused = False

    @property
    def rows_per_reply(self) -> int:
        return self.cluster.rows_per_reply

    def ask(self, future: Asked, call: Callable[[], Any], *, snapshot: bool) -> Asked:
        """Have the network answer the future with the call, unless the transaction cannot be used."""
        try:
            self.check_usable()
        except FDBError as error:
            future.resolve(None, error)
            return future

        def timely() -> Any:
            self.check_time()
            return call()

        self._outstanding = [(read, is_snapshot) for read, is_snapshot in self._outstanding if not read.is_ready()]
        self._outstanding.append((future, snapshot))
        self.cluster.network.send(future, timely)
        return future

    def version(self) -> int:
        if self.read_version is None:
            self.read_version = self.cluster.read_version()
        return self.read_version

    def stored(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        version = self.version()
        self.cluster.step("read")
        self.cluster.fail("read")
        return self.cluster.read(begin, end, version, limit, reverse)

    def add_read(self, begin: bytes, end: bytes) -> None:
        self.reads.append((begin, end))
        self.size += len(begin) + len(end) + RANGE_OVERHEAD_BYTES

    def add_write(self, begin: bytes, end: bytes) -> None:
        self.writes.append((begin, end))
        self.size += len(begin) + len(end) + RANGE_OVERHEAD_BYTES

    def begin_to_commit(self) -> None:
        """Commit waits for reads that are under way, except for snapshot reads, which fail at once."""
        self.committing = True
        watched = {id(value) for _, value, _ in self.watches}
        for read, is_snapshot in self._outstanding:
            if is_snapshot and id(read) not in watched:
                read.resolve(None, FDBError(TRANSACTION_CANCELLED))
        self._outstanding = []

    def abandon(self, error: FDBError) -> None:
        """Fail what is under way, and what the commit would have brought."""
        watches, self.watches = self.watches, []
        stamps, self.stamps = self.stamps, []
        reads, self._outstanding = self._outstanding, []
        futures: list[Future[Any]] = [*(watch[2] for watch in watches), *stamps, *(read for read, _ in reads)]
        for future in futures:
            future.resolve(None, error)

    def check_usable(self) -> None:
        if self.cancelled:
            raise FDBError(TRANSACTION_CANCELLED)
        if self.committing or self.misused:
            self.misused = True
            raise FDBError(USED_DURING_COMMIT)
        self.check_time()

    def check_time(self) -> None:
        timeout_s = self.options.timeout_ms / 1_000
        if timeout_s and self.cluster.now_s - self._created_at_s > timeout_s:
            raise FDBError(TRANSACTION_TIMED_OUT)
