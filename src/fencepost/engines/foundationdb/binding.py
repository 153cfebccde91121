"""What is used of FoundationDB's Python binding: a few names, and how it is loaded.

The binding opens the client library `libfdb_c` when its API version is chosen, so nothing of it
is touched before a store is opened. Whatever has the names below can stand in its place, which
is how the engine is tested on a simulator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ...errors import StoreError, StoreUnavailable

Result = TypeVar("Result")

API_VERSION: Final = 730  # the oldest client library that will do is that of FoundationDB 7.3
TIMED_OUT: Final = 1031
WANT_ALL: Final = -2  # fdb.StreamingMode.want_all
TIMEOUT_S: Final = 10.0
TIMEOUTS: Final = 3  # so many transactions may time out before a call is given up


class KeyValue(Protocol):
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...


class Rows(Protocol):
    """A range read that is under way."""

    def to_list(self) -> list[KeyValue]: ...


class Future(Protocol):
    def wait(self) -> Any: ...
    def on_ready(self, callback: Callable[[Any], None]) -> None: ...
    def cancel(self) -> None: ...


class Value(Protocol):
    """A read of one key that is under way; `value` waits for it and is None if nothing is there."""

    @property
    def value(self) -> bytes | None: ...


class Reads(Protocol):
    def get(self, key: bytes) -> Value: ...
    def get_range(
        self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False, streaming_mode: int = WANT_ALL
    ) -> Rows: ...
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


@dataclass(frozen=True, slots=True)
class Connection:
    """A database, and the error that its binding raises, which exists only once that is loaded."""

    database: Database
    error: type[Exception]
    timeout_s: float = TIMEOUT_S

    def begin(self) -> Transaction:
        transaction = self.database.create_transaction()
        transaction.options.set_timeout(int(self.timeout_s * 1_000))
        return transaction


class Tries:
    """One call's transactions, one after another: after an error, the one to go on with.

    `on_error` knows what is worth another try, waits a little and makes the transaction as new. It
    cannot revive one that has timed out; that is replaced, a few times. What is not worth
    another try comes out as a `StoreError`: never as a verdict.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timeouts = 0
        self.number = 0  # of the try; what was begun in an earlier one is void
        self.transaction = connection.begin()

    def recover(self, error: Exception) -> None:
        """Ready for another try, or the end of it."""
        self.number += 1
        code = getattr(error, "code", 0)
        if code == TIMED_OUT and self._timeouts < TIMEOUTS - 1:
            self._timeouts += 1
            self.transaction = self._connection.begin()
            return
        try:
            self.transaction.on_error(error).wait()
        except self._connection.error as final:
            raise _failure(final) from error

    def run(self, body: Callable[[Transaction], Result]) -> Result:
        """Do what may be done more than once, until it has succeeded."""
        while True:
            try:
                return body(self.transaction)
            except self._connection.error as error:
                self.recover(error)


def _failure(error: Exception) -> StoreError:
    code = getattr(error, "code", 0)
    if code == TIMED_OUT:
        return StoreUnavailable(f"FoundationDB did not answer in time ({error}); is the cluster reachable?")
    kind = StoreUnavailable if 1_000 <= code < 2_000 else StoreError
    return kind(f"FoundationDB failed: {error}")


def connect(cluster_file: str | None) -> Connection:
    """Load the binding and open the cluster; FoundationDB itself connects when it is first used."""
    fdb = importlib.import_module("fdb")
    try:
        if not fdb.is_api_version_selected():
            fdb.api_version(API_VERSION)
    except Exception as error:  # the binding raises bare Exception where the library is missing
        raise StoreUnavailable(
            f"FoundationDB's client library could not be loaded: {error} Install the FoundationDB client "
            "package, which brings libfdb_c, in a version that is at least that of the Python binding"
        ) from error
    if fdb.get_api_version() < API_VERSION:
        raise StoreUnavailable(
            f"this process has chosen FoundationDB's API version {fdb.get_api_version()}; "
            f"Fencepost needs {API_VERSION} or later"
        )
    try:
        return Connection(fdb.open(cluster_file), fdb.FDBError)
    except fdb.FDBError as error:
        raise StoreUnavailable(f"cluster file {cluster_file or '(default)'}: {error}") from error
