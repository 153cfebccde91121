"""Futures, as the binding has them: to be waited for, asked, cancelled, or given a callback.

`block_until_ready` waits as the binding does: on one semaphore for each thread, which the future's callback releases.
If a KeyboardInterrupt ends such a wait, the callback is still registered. It releases the semaphore later, and the next
wait of that thread ends too early, with `future_not_set` (2015).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .errors import FUTURE_NOT_SET, OPERATION_CANCELLED, FDBError

Result = TypeVar("Result")

_of_thread = threading.local()


class Future(Generic[Result]):
    """Not ready until `resolve` is called. Only the first call of `resolve` counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready = False
        self._result: Result | None = None
        self._error: FDBError | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self.on_cancel: Callable[[], object] = lambda: None
        self.check_may_block: Callable[[], None] = lambda: None

    def resolve(self, result: Result | None, error: FDBError | None = None) -> None:
        with self._lock:
            if self._ready:
                return
            self._result, self._error = result, error
            self._ready = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self) -> Any:
        self.block_until_ready()
        if not self._ready:
            raise FDBError(FUTURE_NOT_SET)
        if self._error is not None:
            raise self._error
        return self._result

    def is_ready(self) -> bool:
        return self._ready

    def block_until_ready(self) -> None:
        if self._ready:
            return
        self.check_may_block()
        semaphore = getattr(_of_thread, "semaphore", None)
        if semaphore is None:
            semaphore = _of_thread.semaphore = threading.Semaphore(0)
        self.on_ready(lambda _: semaphore.release())
        try:
            semaphore.acquire()
        except Exception:
            _of_thread.semaphore = threading.Semaphore(0)
            raise

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        with self._lock:
            if not self._ready:
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        self.on_cancel()
        self.resolve(None, FDBError(OPERATION_CANCELLED))


def answer(future: Future[Result], call: Callable[[], Result]) -> None:
    """Make the future ready with what the call returns or raises."""
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
