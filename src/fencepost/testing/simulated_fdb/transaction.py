"""A transaction of the simulated cluster, with the names and manners of the Python binding.

Reads see the version at which the transaction began and, on top of it, its own writes; each adds
the range that it has seen to the read conflict ranges, unless it is a snapshot read or was
answered by the transaction's own writes alone. Nothing leaves the client before `commit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .api import KeySelector, KeyValue, Options, Rows, StreamingMode
from .errors import (
    ACCESSED_UNREADABLE,
    INVERTED_RANGE,
    KEY_OUTSIDE_LEGAL_RANGE,
    KEY_TOO_LARGE,
    NO_COMMIT_VERSION,
    RANGE_LIMITS_INVALID,
    RETRYABLE,
    TRANSACTION_CANCELLED,
    TRANSACTION_TOO_LARGE,
    VALUE_TOO_LARGE,
    WATCHES_DISABLED,
    FDBError,
)
from .futures import Future, Value, answer, answered
from .mutations import OPERATIONS, STAMP_BYTES, VALUE_BYTES, Mutation, Range, Request, with_stamp

if TYPE_CHECKING:
    from .cluster import SimulatedCluster

KEY_BYTES: Final = 10_000
MUTATION_OVERHEAD_BYTES: Final = 40
RANGE_OVERHEAD_BYTES: Final = 24
LAST_KEY: Final = b"\xff"


class SimulatedDatabase:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster

    def create_transaction(self) -> Transaction:
        return Transaction(self)


class Reads:
    """The reading half of a transaction, once as it is and once as `snapshot`."""

    def __init__(self, transaction: Transaction, snapshot: bool) -> None:
        self._transaction = transaction
        self._snapshot = snapshot

    def get_read_version(self) -> Future[int]:
        return answered(self._transaction._version)

    def get(self, key: bytes) -> Value:
        value = Value()
        answer(value, lambda: self._transaction._get(key, self._snapshot))  # type: ignore[arg-type,return-value]
        return value

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.get_range(key.start, key.stop, reverse=key.step == -1)
        return self.get(key)

    def get_key(self, selector: KeySelector) -> Value:
        value = Value()
        answer(value, lambda: self._transaction._get_key(selector, self._snapshot))
        return value

    def get_range(
        self,
        begin: bytes | KeySelector | None,
        end: bytes | KeySelector | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> Rows:
        first = b"" if begin is None else begin
        last = LAST_KEY if end is None else end
        return Rows(answered(lambda: self._transaction._get_range(first, last, limit, reverse, self._snapshot)))

    def get_range_startswith(self, prefix: bytes, limit: int = 0, reverse: bool = False) -> Rows:
        return self.get_range(prefix, next_prefix(prefix), limit, reverse)


class Transaction(Reads):
    def __init__(self, database: SimulatedDatabase) -> None:
        super().__init__(self, snapshot=False)
        self.db = database
        self.snapshot = Reads(self, snapshot=True)
        self._cluster = database.cluster
        self._retries = 0
        self._watches: list[tuple[bytes, bytes | None, Future[None]]] = []
        self._stamps: list[Value] = []
        self.reset()

    def reset(self) -> None:
        """As new. Watches that no commit has set up are cancelled."""
        self._abandon(FDBError(TRANSACTION_CANCELLED))
        self.options = Options()
        self._read_version: int | None = None
        self._reads: list[Range] = []
        self._writes: list[Range] = []
        self._mutations: list[Mutation] = []
        self._unreadable: list[Range] = []
        self._committed_version = -1
        self._cancelled = False
        self._size = 0

    # Writing

    def set(self, key: bytes, value: bytes) -> None:
        self._mutate("set", key, value)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.set(key, value)

    def clear(self, key: bytes) -> None:
        self._clear_range(key, key + b"\0")

    def clear_range(self, begin: bytes, end: bytes) -> None:
        if begin > end:
            raise FDBError(INVERTED_RANGE)
        self._clear_range(begin, end)

    def clear_range_startswith(self, prefix: bytes) -> None:
        self.clear_range(prefix, next_prefix(prefix))

    def __delitem__(self, key: Any) -> None:
        if isinstance(key, slice):
            self.clear_range(key.start or b"", LAST_KEY if key.stop is None else key.stop)
        else:
            self.clear(key)

    def add(self, key: bytes, param: bytes) -> None:
        self._mutate("add", key, param)

    def bit_and(self, key: bytes, param: bytes) -> None:
        self._mutate("bit_and", key, param)

    def bit_or(self, key: bytes, param: bytes) -> None:
        self._mutate("bit_or", key, param)

    def bit_xor(self, key: bytes, param: bytes) -> None:
        self._mutate("bit_xor", key, param)

    def max(self, key: bytes, param: bytes) -> None:
        self._mutate("max", key, param)

    def min(self, key: bytes, param: bytes) -> None:
        self._mutate("min", key, param)

    def byte_max(self, key: bytes, param: bytes) -> None:
        self._mutate("byte_max", key, param)

    def byte_min(self, key: bytes, param: bytes) -> None:
        self._mutate("byte_min", key, param)

    def append_if_fits(self, key: bytes, param: bytes) -> None:
        self._mutate("append_if_fits", key, param)

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        self._mutate("compare_and_clear", key, param)

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        oldest = (self._read_version or 0).to_bytes(8, "big") + b"\0\0"
        # The key's write conflict range is known only once its stamp is: the cluster adds it.
        self._unreadable.append((with_stamp(key, oldest), with_stamp(key, b"\xff" * STAMP_BYTES) + b"\0"))
        self.options.next_write_conflicts = False
        self._mutate("set_versionstamped_key", key, param)

    def set_versionstamped_value(self, key: bytes, param: bytes) -> None:
        with_stamp(param, bytes(STAMP_BYTES))
        self._unreadable.append((key, key + b"\0"))
        self._mutate("set_versionstamped_value", key, param)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._add(self._reads, begin, end)

    def add_read_conflict_key(self, key: bytes) -> None:
        self._add(self._reads, key, key + b"\0")

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._add(self._writes, begin, end)

    def add_write_conflict_key(self, key: bytes) -> None:
        self._add(self._writes, key, key + b"\0")

    def watch(self, key: bytes) -> Future[None]:
        self._check_usable()
        if not self.options.sees_writes:
            raise FDBError(WATCHES_DISABLED)
        future: Future[None] = Future()
        self._watches.append((key, self._get(key, snapshot=True), future))
        return future

    # Committing

    def commit(self) -> Future[None]:
        return answered(self._commit)

    def get_versionstamp(self) -> Value:
        """Ready when the commit has succeeded."""
        stamp = Value()
        self._stamps.append(stamp)
        return stamp

    def get_committed_version(self) -> int:
        return self._committed_version

    def get_approximate_size(self) -> Future[int]:
        return answered(lambda: self._size)

    def set_read_version(self, version: int) -> None:
        self._read_version = version

    def on_error(self, error: FDBError | int) -> Future[None]:
        """Ready, and the transaction as new, if the error is worth another try; else failed with it."""
        code = error if isinstance(error, int) else error.code

        def recover() -> None:
            self._cluster.step("on_error")
            limit = self.options.retry_limit
            if code not in RETRYABLE or self._cancelled or 0 <= limit <= self._retries:
                raise FDBError(code)
            self._retries += 1
            timeout_ms, options = self.options.timeout_ms, self.options
            self.reset()
            # From API version 610 on, these outlast a retry.
            self.options.retry_limit, self.options.timeout_ms = options.retry_limit, timeout_ms

        return answered(recover)

    def cancel(self) -> None:
        self._cancelled = True

    def _commit(self) -> None:
        self._check_usable()
        if self._size > self.options.size_limit:
            raise FDBError(TRANSACTION_TOO_LARGE)
        stamps, self._stamps = self._stamps, []
        if not self._mutations and not self._writes:
            for stamp in stamps:
                stamp.resolve(None, FDBError(NO_COMMIT_VERSION))
        else:
            request = Request(self._version(), self._reads, self._writes, self._mutations)
            try:
                self._committed_version, versionstamp = self._cluster.commit(request)
            except FDBError as error:
                self._stamps = stamps
                self._abandon(error)
                raise
            for stamp in stamps:
                stamp.resolve(versionstamp)
        watches, self._watches = self._watches, []
        for key, value, future in watches:
            if not future.is_ready():
                self._cluster.watch(key, value, future)

    def _abandon(self, error: FDBError) -> None:
        """Whoever waits for what the commit would have brought gets the error instead."""
        watches, self._watches = self._watches, []
        stamps, self._stamps = self._stamps, []
        for _, _, future in watches:
            future.resolve(None, error)
        for stamp in stamps:
            stamp.resolve(None, error)

    # Below the surface

    def _check_usable(self) -> None:
        if self._cancelled:
            raise FDBError(TRANSACTION_CANCELLED)

    def _version(self) -> int:
        self._check_usable()
        if self._read_version is None:
            self._read_version = self._cluster.read_version()
        return self._read_version

    def _read(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        version = self._version()
        self._cluster.step("read")
        self._cluster.fail("read")
        return self._cluster.read(begin, end, version, limit, reverse)

    def _sees_writes(self, snapshot: bool) -> bool:
        return self.options.snapshot_sees_writes if snapshot else self.options.sees_writes

    def _check_readable(self, begin: bytes, end: bytes) -> None:
        if any(first < end and begin < last for first, last in self._unreadable):
            raise FDBError(ACCESSED_UNREADABLE)

    def _get(self, key: bytes, snapshot: bool) -> bytes | None:
        _check_key(key)
        own = [m for m in self._mutations if m.touches(key)] if self._sees_writes(snapshot) else []
        if self._sees_writes(snapshot):
            self._check_readable(key, key + b"\0")
        while own and any(m.name in ("set", "clear_range") for m in own[1:]):
            own.pop(0)  # what was there before a set does not matter
        if own and own[0].name in ("set", "clear_range"):
            value: bytes | None = None
            self._check_usable()
        else:
            value = next((found for _, found in self._read(key, key + b"\0", 1, False)), None)
            if not snapshot:
                self._reads.append((key, key + b"\0"))
                self._size += 2 * len(key) + 1 + RANGE_OVERHEAD_BYTES
        for mutation in own:
            value = mutation.applied(value)
        return value

    def _get_key(self, selector: KeySelector, snapshot: bool) -> bytes:
        resolved, (begin, end) = self._resolve(selector, snapshot)
        if not snapshot and begin < end:
            self._reads.append((begin, end))
        return resolved

    def _resolve(self, selector: KeySelector, snapshot: bool) -> tuple[bytes, Range]:
        """The key, and the range that had to be looked at to find it."""
        bound = selector.key + b"\0" if selector.or_equal else selector.key
        if selector.offset > 0:
            rows = self._rows(bound, LAST_KEY, selector.offset, False, snapshot)
            key = rows[-1].key if len(rows) == selector.offset else LAST_KEY
            return key, (bound, min(key + b"\0", LAST_KEY))
        count = 1 - selector.offset
        rows = self._rows(b"", bound, count, True, snapshot)
        key = rows[-1].key if len(rows) == count else b""
        return key, (key, bound)

    def _get_range(
        self, begin: bytes | KeySelector, end: bytes | KeySelector, limit: int, reverse: bool, snapshot: bool
    ) -> list[KeyValue]:
        if limit < 0:
            raise FDBError(RANGE_LIMITS_INVALID)
        first = self._get_key(begin, snapshot) if isinstance(begin, KeySelector) else begin
        last = self._get_key(end, snapshot) if isinstance(end, KeySelector) else end
        if first > last:
            raise FDBError(INVERTED_RANGE)
        if last > LAST_KEY:
            raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
        rows = self._rows(first, last, limit, reverse, snapshot)
        if not snapshot and first < last:
            if limit and len(rows) == limit:  # nothing beyond the last row was seen
                seen = (rows[-1].key, last) if reverse else (first, rows[-1].key + b"\0")
            else:
                seen = (first, last)
            self._reads.append(seen)
            self._size += len(seen[0]) + len(seen[1]) + RANGE_OVERHEAD_BYTES
        return rows

    def _rows(self, begin: bytes, end: bytes, limit: int, reverse: bool, snapshot: bool) -> list[KeyValue]:
        if not self._mutations or not self._sees_writes(snapshot):
            return [KeyValue(*row) for row in self._read(begin, end, limit, reverse)]
        self._check_readable(begin, end)
        found: dict[bytes, bytes | None] = dict(self._read(begin, end, 0, reverse))
        for mutation in self._mutations:
            if mutation.name == "clear_range":
                found = {key: value for key, value in found.items() if not mutation.touches(key)}
            elif begin <= mutation.key < end and mutation.name in OPERATIONS:
                found[mutation.key] = mutation.applied(found.get(mutation.key))
        rows = [KeyValue(key, value) for key, value in sorted(found.items(), reverse=reverse) if value is not None]
        return rows[:limit] if limit else rows

    def _mutate(self, name: str, key: bytes, param: bytes) -> None:
        self._check_usable()
        _check_key(key[:-4] if name == "set_versionstamped_key" else key)
        if len(param) > VALUE_BYTES:
            raise FDBError(VALUE_TOO_LARGE)
        self._mutations.append(Mutation(name, key, param))
        self._size += len(key) + len(param) + MUTATION_OVERHEAD_BYTES
        self._conflict_by_writing(key, key + b"\0")

    def _clear_range(self, begin: bytes, end: bytes) -> None:
        self._check_usable()
        _check_key(begin)
        if end > LAST_KEY:
            raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
        if begin == end:
            return
        self._mutations.append(Mutation("clear_range", begin, end))
        self._size += len(begin) + len(end) + MUTATION_OVERHEAD_BYTES
        self._unreadable = [r for r in self._unreadable if not (begin <= r[0] and r[1] <= end)]
        self._conflict_by_writing(begin, end)

    def _conflict_by_writing(self, begin: bytes, end: bytes) -> None:
        if self.options.next_write_conflicts:
            self._add(self._writes, begin, end)
        self.options.next_write_conflicts = True

    def _add(self, ranges: list[Range], begin: bytes, end: bytes) -> None:
        self._check_usable()
        if begin > end:
            raise FDBError(INVERTED_RANGE)
        if end > LAST_KEY:
            raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
        ranges.append((begin, end))
        self._size += len(begin) + len(end) + RANGE_OVERHEAD_BYTES


def _check_key(key: bytes) -> None:
    if key >= LAST_KEY:
        raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
    if len(key) > KEY_BYTES:
        raise FDBError(KEY_TOO_LARGE)


def next_prefix(prefix: bytes) -> bytes:
    """The first key that does not begin with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        raise ValueError("key must contain at least one byte not equal to 0xFF")
    return stripped[:-1] + bytes([stripped[-1] + 1])
