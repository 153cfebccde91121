"""What is used of FoundationDB's Python binding: a few names, and how it is loaded.

The binding opens the client library `libfdb_c` when its API version is chosen, so nothing of it
is touched before a store is opened. Whatever has the names below can stand in its place, which
is how the engine is tested on a simulator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ...core.owner import Owner
from ...errors import StoreClosed, StoreUnavailable

API_VERSION: Final = 730  # the oldest client library that will do is that of FoundationDB 7.3
WANT_ALL: Final = -2  # fdb.StreamingMode.want_all
STAMPED_KEY, STAMPED_VALUE = 14, 15  # fdb.MutationType
READ_CONFLICT, WRITE_CONFLICT = 0, 1  # fdb.ConflictRangeType
SNAPSHOT: Final = True
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


class Writes(NamedTuple):
    """What a transaction writes. Stamped keys and values have a gap for the versionstamp, whose offset ends them."""

    read_conflicts: Sequence[bytes]
    stamped_keys: Sequence[tuple[bytes, bytes]]
    stamped_values: Sequence[tuple[bytes, bytes]]
    sets: Sequence[tuple[bytes, bytes]]
    clears: Sequence[bytes]
    write_conflicts: Sequence[bytes]


def simple_write(transaction: Transaction, writes: Writes) -> None:
    """Write by the methods of the transaction."""
    # First what is read: the client takes a read conflict on a key that the transaction has already written for a read
    # of its own write, and drops it.
    for key in writes.read_conflicts:
        transaction.add_read_conflict_key(key)
    for key, value in writes.stamped_keys:
        transaction.set_versionstamped_key(key, value)
    for key, value in writes.stamped_values:
        transaction.set_versionstamped_value(key, value)
    for key, value in writes.sets:
        transaction.set(key, value)
    for key in writes.clears:
        transaction.clear(key)
    for key in writes.write_conflicts:
        transaction.add_write_conflict_key(key)


@dataclass(frozen=True, slots=True)
class Connection:
    """A database, how it is read and written, and the error that its binding raises, which exists once it is loaded."""

    database: Database
    error: type[Exception]
    begin_range: Callable[[Reads, bytes, bytes, int, bool], Future] = simple_range  # returns the first `Reply`
    write: Callable[[Transaction, Writes], None] = simple_write
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
        return Connection(fdb.open(cluster_file), fdb.FDBError, ranges_of(fdb), write_directly)
    except fdb.FDBError as error:
        raise StoreUnavailable(f"cluster file {cluster_file or '(default)'}: {text_of(error)}") from error


def ranges_of(fdb: Any) -> Callable[[Any, bytes, bytes, int, bool], Future]:
    """How the real binding begins a range read whose replies can be awaited one by one.

    The binding's own range read waits for its replies itself. This makes the same call of the C library, always for a
    snapshot read, and what follows a reply is a new range read.
    """
    reply = importlib.import_module("fdb.impl").FutureKeyValueArray

    def begin_range(reads: Any, begin: bytes, end: bytes, limit: int, reverse: bool) -> Future:
        from_key, to_key = (begin, len(begin), False, 1), (end, len(end), False, 1)  # the first key that is not below
        future: Future = reply(
            reads.capi.fdb_transaction_get_range(
                reads.tpointer, *from_key, *to_key, limit, 0, WANT_ALL, 1, SNAPSHOT, reverse
            )
        )
        return future

    return begin_range


def write_directly(transaction: Any, writes: Writes) -> None:
    """As `simple_write`, by the calls of the C library that the binding's methods make.

    An append writes about ten keys for each event and as many conflict keys. The methods take two to five Python calls
    for each of them, a third of the client's time for an append (docs/decisions/095).
    """
    pointer, library = transaction.tpointer, transaction.capi
    add_conflict, mutate = library.fdb_transaction_add_conflict_range, library.fdb_transaction_atomic_op
    for key in writes.read_conflicts:
        add_conflict(pointer, key, len(key), key + b"\0", len(key) + 1, READ_CONFLICT)
    for key, value in writes.stamped_keys:
        mutate(pointer, key, len(key), value, len(value), STAMPED_KEY)
    for key, value in writes.stamped_values:
        mutate(pointer, key, len(key), value, len(value), STAMPED_VALUE)
    for key, value in writes.sets:
        library.fdb_transaction_set(pointer, key, len(key), value, len(value))
    for key in writes.clears:
        library.fdb_transaction_clear(pointer, key, len(key))
    for key in writes.write_conflicts:
        add_conflict(pointer, key, len(key), key + b"\0", len(key) + 1, WRITE_CONFLICT)


def code_of(error: Exception) -> int:
    code: int = getattr(error, "code", 0)
    return code


def text_of(error: Exception) -> str:
    """The error as text with its code. The binding's own text is that of bytes, `b'...'`."""
    description = getattr(error, "description", str(error))
    text = description.decode(errors="replace") if isinstance(description, bytes) else description
    return f"{text} ({code_of(error)})"


Reply = tuple[Sequence[KeyValue], int, bool]  # of a range read: rows, their number, and whether there are more
