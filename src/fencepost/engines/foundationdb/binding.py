"""What is used of FoundationDB's Python binding: a few names, and how it is loaded.

The binding opens the client library `libfdb_c` when its API version is chosen, so nothing of it
is touched before a store is opened. Whatever has the names below can stand in its place, which
is how the engine is tested on a simulator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...errors import StoreClosed, StoreUnavailable
from ...processes import Owner

API_VERSION: Final = 730  # the oldest client library that will do is that of FoundationDB 7.3
WANT_ALL: Final = -2  # fdb.StreamingMode.want_all
TIMEOUT_S: Final = 10.0


class KeyValue(Protocol):
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...


class Future(Protocol):
    def wait(self) -> Any: ...
    def is_ready(self) -> bool: ...
    def on_ready(self, callback: Callable[[Any], None]) -> None: ...
    def cancel(self) -> None: ...


class Value(Future, Protocol):
    """A read of one key that is under way; `value` waits for it and is None if nothing is there."""

    @property
    def value(self) -> bytes | None: ...


class Reads(Protocol):
    def get(self, key: bytes) -> Value: ...
    def get_range(
        self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False, streaming_mode: int = WANT_ALL
    ) -> Any: ...
    def get_read_version(self) -> Future: ...


class Transaction(Reads, Protocol):
    @property
    def snapshot(self) -> Reads: ...
    @property
    def options(self) -> Any: ...
    def set(self, key: bytes, value: bytes) -> None: ...
    def clear(self, key: bytes) -> None: ...
    def clear_range(self, begin: bytes, end: bytes) -> None: ...
    def set_versionstamped_key(self, key: bytes, param: bytes) -> None: ...
    def set_versionstamped_value(self, key: bytes, param: bytes) -> None: ...
    def add_read_conflict_key(self, key: bytes) -> None: ...
    def add_write_conflict_key(self, key: bytes) -> None: ...
    def watch(self, key: bytes) -> Future: ...
    def get_versionstamp(self) -> Value: ...
    def commit(self) -> Future: ...
    def on_error(self, error: Any) -> Future: ...


class Database(Protocol):
    def create_transaction(self) -> Transaction: ...


def simple_range(reads: Reads, begin: bytes, end: bytes, limit: int, reverse: bool) -> Future:
    """Begin a range read on a database whose range reads have `first` of their own, as the simulator's do."""
    first: Future = reads.get_range(begin, end, limit, reverse, WANT_ALL).first
    return first


@dataclass(frozen=True, slots=True)
class Connection:
    """A database, how ranges of it are read, and the error that its binding raises, which exists once it is loaded."""

    database: Database
    error: type[Exception]
    begin_range: Callable[[Reads, bytes, bytes, int, bool], Future] = simple_range  # returns the first `Reply`
    timeout_s: float = TIMEOUT_S
    owner: Owner = field(default_factory=Owner)

    def begin(self) -> Transaction:
        self.owner.check()  # a forked child has no network thread, so no call would ever be answered
        transaction = self.database.create_transaction()
        transaction.options.set_timeout(int(self.timeout_s * 1_000))
        return transaction


_network: Owner | None = None  # the process that has FoundationDB's network thread: a fork does not copy it


def connect(cluster_file: str | None) -> Connection:
    """Load the binding and open the cluster; FoundationDB itself connects when it is first used."""
    global _network
    if _network is not None and not _network.is_this_process:
        raise StoreClosed(
            "this process was forked from one that had opened a store on FoundationDB, whose network thread a fork "
            "does not copy: fork before the first store is opened, or start processes with multiprocessing's 'spawn'"
        )
    fdb = importlib.import_module("fdb")
    try:
        if not fdb.is_api_version_selected():
            fdb.api_version(API_VERSION)
    except Exception as error:  # the binding raises bare Exception where the library is missing
        raise StoreUnavailable(
            f"FoundationDB's client library could not be loaded: {error} Install the FoundationDB client "
            "package, which brings libfdb_c, in a version that is at least that of the Python binding, or install the "
            "binding in the version of your cluster, such as pip install 'foundationdb==7.3.*'"
        ) from error
    if fdb.get_api_version() < API_VERSION:
        raise StoreUnavailable(
            f"this process has chosen FoundationDB's API version {fdb.get_api_version()}; "
            f"Fencepost needs {API_VERSION} or later"
        )
    try:
        _network = Owner()
        return Connection(fdb.open(cluster_file), fdb.FDBError, _ranges_of(fdb))
    except fdb.FDBError as error:
        raise StoreUnavailable(f"cluster file {cluster_file or '(default)'}: {error}") from error


def _ranges_of(fdb: Any) -> Callable[[Reads, bytes, bytes, int, bool], Future]:
    """How the real binding begins a range read whose replies can be awaited one by one.

    The binding's range read waits for its replies itself. A subclass shows its first reply; what follows that reply is
    a new range read.
    """
    impl = importlib.import_module("fdb.impl")

    class AwaitableRange(impl.FDBRange):  # type: ignore[misc,name-defined]
        @property
        def first(self) -> Future:
            future: Future = self._future
            return future

    def begin_range(reads: Reads, begin: bytes, end: bytes, limit: int, reverse: bool) -> Future:
        first, last = map(fdb.KeySelector.first_greater_or_equal, (begin, end))
        return AwaitableRange(reads, first, last, limit, reverse, WANT_ALL).first

    return begin_range


Reply = tuple[Sequence[KeyValue], int, bool]  # of a range read: rows, their number, and whether there are more
