"""What a transaction knows before it commits: its read version, own writes, conflict ranges and calls under way.

A timeout counts from the creation of the transaction or its last `reset`, across all retries. A transaction whose
commit is under way or over cannot be used until it is reset. An error of a write shows when the transaction commits.
When the transaction is collected, everything that is under way fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .api import Options, lasting
from .errors import (
    CLUSTER_VERSION_CHANGED,
    NO_COMMIT_VERSION,
    RETRYABLE,
    THROTTLED,
    TRANSACTION_CANCELLED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_LARGE,
    USED_DURING_COMMIT,
    FDBError,
)
from .futures import Future, Value
from .mutations import Range, Request
from .network import TimedNetwork
from .own_writes import OwnWrites

if TYPE_CHECKING:
    from .cluster import SimulatedCluster

RANGE_OVERHEAD_BYTES: Final = 24
FIRST_BACKOFF_S: Final = 0.01
MAX_THROTTLED_BACKOFF_S: Final = 30.0

Asked = TypeVar("Asked", bound=Future[Any])


class State:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.watches: list[tuple[bytes, Value, Future[None]]] = []
        self.stamps: list[Value] = []
        self._outstanding: list[tuple[Future[Any], bool]] = []
        self._commit: Future[None] | None = None
        self._collected = False
        self.reset()

    def reset(self) -> None:
        self.clear(Options())
        self.retries = 0
        self._backoff_s = FIRST_BACKOFF_S
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
        self.committed_version = -1
        self._version_asked: Future[Any] | None = None
        self._commit_began = False  # and it was not found to be over
        self._misused = False
        self._write_error: FDBError | None = None

    @property
    def rows_per_reply(self) -> int:
        return self.cluster.rows_per_reply

    def ask(self, future: Asked, call: Callable[[], Any], *, snapshot: bool, kind: str = "read") -> Asked:
        """Have the network answer the future with the call, unless the transaction cannot be used."""
        try:
            self.check_usable()
            if self._write_error is not None:
                raise self._write_error
        except FDBError as error:
            future.resolve(None, error)
            return future

        def timely() -> Any:
            self.check_time()
            return call()

        self._outstanding = [(read, is_snapshot) for read, is_snapshot in self._outstanding if not read.is_ready()]
        self._outstanding.append((future, snapshot))
        if kind == "read_version":
            self._version_asked = future
        self.cluster.network.send(future, timely, kind)
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

    def may_write(self, check: Callable[[], object] = lambda: None) -> bool:
        """Whether something may be written, by its own check, too. If not, the commit fails of the reason."""
        try:
            self.check_usable()
            check()
        except FDBError as error:
            self._write_error = self._write_error or error
            return False
        return True

    def commit(self) -> Future[None]:
        future: Future[None] = Future()
        try:
            self.check_usable()
        except FDBError as error:
            future.resolve(None, error)
            return future
        self._commit_began = True
        self._commit = future
        # Commit waits for reads that are under way, except for snapshot reads, which fail at once.
        watched = {id(value) for _, value, _ in self.watches}
        for read, is_snapshot in self._outstanding:
            if is_snapshot and id(read) not in watched:
                read.resolve(None, FDBError(TRANSACTION_CANCELLED))
        network = self.cluster.network
        if network.has_clock and self._version_asked is not None:
            # A client sends its commit once it has its read version.
            self._version_asked.on_ready(lambda _: network.send(future, self._commit_now, "commit"))
        else:
            network.send(future, self._commit_now, "commit")
        return future

    def _commit_now(self) -> None:
        if self._collected and self.cluster.jitter() < 0.5:
            return  # it was collected before its request was sent, or after: then it is committed, and nobody is told
        try:
            self.check_time()
            if self._write_error is not None:
                raise self._write_error
            if self.size > self.options.size_limit:
                raise FDBError(TRANSACTION_TOO_LARGE)
            versionstamp = None
            if self.own or self.writes:
                request = Request(self.version(), self.reads, self.writes, self.own.mutations)
                self.committed_version, versionstamp = self.cluster.commit(request)
            if self._misused:
                raise FDBError(USED_DURING_COMMIT)
        except FDBError as error:
            self.abandon(error)
            raise
        watches, self.watches = self.watches, []
        for key, value, future in watches:
            if not future.is_ready():
                self.cluster.watch(key, value.wait().value, future)
        stamps, self.stamps = self.stamps, []
        for stamp in stamps:
            stamp.resolve(versionstamp, None if versionstamp else FDBError(NO_COMMIT_VERSION))

    def on_error(self, code: int) -> Future[None]:
        """Ready, and the transaction as new, if the error is worth another try; else failed with it."""
        delay_s = self.cluster.jitter() * self._backoff_s
        future: Future[None] = Future()
        network = self.cluster.network

        def recover() -> None:
            self.cluster.step("on_error")
            worth = code in RETRYABLE or (code == CLUSTER_VERSION_CHANGED and self.cluster.multi_version)
            if self._misused or self.cancelled or not worth or 0 <= self.options.retry_limit <= self.retries:
                raise FDBError(code)
            if not network.has_clock:
                self.cluster.pass_time(delay_s)
            longest_s = MAX_THROTTLED_BACKOFF_S if code in THROTTLED else self.options.max_retry_delay_ms / 1_000
            self._backoff_s = min(2 * self._backoff_s, longest_s)
            self.check_time()
            self.retries += 1
            self.clear(lasting(self.options))

        if isinstance(network, TimedNetwork):
            network.send_later(delay_s, future, recover)
        else:
            network.send(future, recover, "on_error")
        return future

    def cancel(self) -> None:
        self.cancelled = True
        self.abandon(FDBError(TRANSACTION_CANCELLED))

    def collect(self) -> None:
        """Nobody can use the transaction any more: what is under way fails."""
        self._collected = True
        self.abandon(FDBError(TRANSACTION_CANCELLED))

    def abandon(self, error: FDBError) -> None:
        """Fail what is under way, and what the commit would have brought."""
        watches, self.watches = self.watches, []
        stamps, self.stamps = self.stamps, []
        reads, self._outstanding = self._outstanding, []
        futures: list[Future[Any]] = [*(watch[2] for watch in watches), *stamps, *(read for read, _ in reads)]
        if self._commit is not None:
            futures.append(self._commit)
        for future in futures:
            future.resolve(None, error)

    def check_usable(self) -> None:
        if self.cancelled:
            raise FDBError(TRANSACTION_CANCELLED)
        if self._commit_began:
            self._misused = True
            raise FDBError(USED_DURING_COMMIT)
        self.check_time()

    def check_time(self) -> None:
        timeout_s = self.options.timeout_ms / 1_000
        if timeout_s and self.cluster.now_s - self._created_at_s > timeout_s:
            raise FDBError(TRANSACTION_TIMED_OUT)
