"""Futures, as the binding has them: to be waited for, asked, cancelled, or told whom to call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .errors import OPERATION_CANCELLED, FDBError

Result = TypeVar("Result")


class Future(Generic[Result]):
    """Not ready until `resolve` has been called, which counts once."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._result: Result | None = None
        self._error: FDBError | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self.on_cancel: Callable[[], object] = lambda: None

    def resolve(self, result: Result | None, error: FDBError | None = None) -> None:
        with self._lock:
            if self._ready.is_set():
                return
            self._result, self._error = result, error
            self._ready.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self) -> Any:
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def is_ready(self) -> bool:
        return self._ready.is_set()

    def block_until_ready(self) -> None:
        self._ready.wait()

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        with self._lock:
            if not self._ready.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        self.on_cancel()
        self.resolve(None, FDBError(OPERATION_CANCELLED))


def answered(call: Callable[[], Result]) -> Future[Result]:
    """A future that is ready with what the call returns or raises."""
    future: Future[Result] = Future()
    answer(future, call)
    return future


def answer(future: Future[Result], call: Callable[[], Result]) -> None:
    try:
        result = call()
    except FDBError as error:
        future.resolve(None, error)
    else:
        future.resolve(result)


class Value(Future[bytes]):
    """What a key holds: `value` is None, and `present()` false, where there is nothing."""

    def wait(self) -> Value:
        super().wait()
        return self

    @property
    def value(self) -> bytes | None:
        self.wait()
        return self._result

    def present(self) -> bool:
        return self.value is not None

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, Value) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bytes__(self) -> bytes:
        assert self.value is not None
        return self.value
