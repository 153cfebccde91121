"""A transaction of the simulated cluster, with the names and manners of the Python binding.

Reads see the version at which the transaction began and, on top of it, its own writes. Nothing leaves the client before
`commit`, and what is wrong with a write shows there. `on_error` waits longer after each retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .api import Options
from .errors import INVERTED_RANGE, KEY_OUTSIDE_LEGAL_RANGE, VALUE_TOO_LARGE, WATCHES_DISABLED, FDBError
from .futures import Future, Value
from .mutations import STAMP_BYTES, VALUE_BYTES, Mutation, Range, with_stamp
from .reading import LAST_KEY, check_key
from .reads import Reads, next_prefix
from .state import State

if TYPE_CHECKING:
    from .cluster import SimulatedCluster

MUTATION_OVERHEAD_BYTES: Final = 44


class SimulatedDatabase:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster

    def create_transaction(self) -> Transaction:
        return Transaction(self)


class Transaction(Reads):
    def __init__(self, database: SimulatedDatabase) -> None:
        self.db = database
        self._state = State(database.cluster)
        super().__init__(self._state, snapshot=False)
        self.snapshot = Reads(self._state, snapshot=True)

    @property
    def options(self) -> Options:
        return self._state.options

    def reset(self) -> None:
        """As new. Watches that no commit has set up, and reads that are under way, are cancelled."""
        self._state.reset()

    # Writing

    def set(self, key: bytes, value: bytes) -> None:
        self._mutate("set", key, value)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.set(key, value)

    def clear(self, key: bytes) -> None:
        self._clear_range(key, key + b"\0")

    def clear_range(self, begin: bytes, end: bytes) -> None:
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
        if not self._state.may_write(lambda: with_stamp(key, bytes(STAMP_BYTES))):
            return
        oldest = (self._state.read_version or 0).to_bytes(8, "big") + b"\0\0"
        unreadable = with_stamp(key, oldest), with_stamp(key, b"\xff" * STAMP_BYTES) + b"\0"
        # The key's write conflict range is known only once its stamp is: the cluster adds it.
        self.options.next_write_conflicts = False
        self._mutate("set_versionstamped_key", key, param, unreadable)

    def set_versionstamped_value(self, key: bytes, param: bytes) -> None:
        if self._state.may_write(lambda: with_stamp(param, bytes(STAMP_BYTES))):
            self._mutate("set_versionstamped_value", key, param, (key, key + b"\0"))

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        check_range(begin, end)
        if not self._state.may_write():
            return
        for first, last in self._state.own.unsettled(begin, end) if self.options.sees_writes else [(begin, end)]:
            self._state.add_read(first, last)

    def add_read_conflict_key(self, key: bytes) -> None:
        self.add_read_conflict_range(key, key + b"\0")

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        check_range(begin, end)
        if self._state.may_write():
            self._state.add_write(begin, end)

    def add_write_conflict_key(self, key: bytes) -> None:
        self.add_write_conflict_range(key, key + b"\0")

    def watch(self, key: bytes) -> Future[None]:
        """A future that becomes ready when the value is no longer the one that this transaction sees now."""
        self._state.check_usable()
        if not self.options.sees_writes:
            raise FDBError(WATCHES_DISABLED)
        future: Future[None] = Future()
        self._state.watches.append((key, self.snapshot.get(key), future))
        return future

    # Committing

    def commit(self) -> Future[None]:
        return self._state.commit()

    def get_versionstamp(self) -> Value:
        """Ready when the commit has succeeded."""
        stamp = Value()
        self._state.stamps.append(stamp)
        return stamp

    def get_committed_version(self) -> int:
        return self._state.committed_version

    def get_approximate_size(self) -> Future[int]:
        return self._state.ask(Future(), lambda: self._state.size, snapshot=False)

    def set_read_version(self, version: int) -> None:
        self._state.read_version = version

    def on_error(self, error: FDBError | int) -> Future[None]:
        """Ready, and the transaction as new, if the error is worth another try; else failed with it."""
        return self._state.on_error(error if isinstance(error, int) else error.code)

    def cancel(self) -> None:
        self._state.cancel()

    # Below the surface

    def _mutate(self, name: str, key: bytes, param: bytes, unreadable: Range | None = None) -> None:
        def check() -> None:
            check_key(key[:-4] if name == "set_versionstamped_key" else key)
            if len(param) > VALUE_BYTES:
                raise FDBError(VALUE_TOO_LARGE)

        if self._state.may_write(check):
            self._state.own.add(Mutation(name, key, param), unreadable)
            self._state.size += len(key) + len(param) + MUTATION_OVERHEAD_BYTES
            self._conflict_by_writing(key, key + b"\0")

    def _clear_range(self, begin: bytes, end: bytes) -> None:
        def check() -> None:
            check_range(begin, end)
            check_key(begin)

        if self._state.may_write(check) and begin != end:
            self._state.own.add(Mutation("clear_range", begin, end))
            self._state.size += len(begin) + len(end) + MUTATION_OVERHEAD_BYTES
            self._conflict_by_writing(begin, end)

    def _conflict_by_writing(self, begin: bytes, end: bytes) -> None:
        if self.options.next_write_conflicts:
            self.add_write_conflict_range(begin, end)
        self.options.next_write_conflicts = True


def check_range(begin: bytes, end: bytes) -> None:
    if begin > end:
        raise FDBError(INVERTED_RANGE)
    if end > LAST_KEY:
        raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
