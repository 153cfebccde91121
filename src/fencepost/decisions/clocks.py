"""The time that decisions go by: `now()`, from a clock that can be replaced.

    with clock(lambda: datetime(2030, 1, 1, tzinfo=timezone.utc)):
        confirm(store, ...)

A clock holds for the code inside the `with`, in this thread or task alone. The time at which the
store records an event is the store's own and not touched by this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone


def _system() -> datetime:
    return datetime.now(timezone.utc)


_clock: ContextVar[Callable[[], datetime]] = ContextVar("fencepost-clock", default=_system)


def now() -> datetime:
    """The current time, with a time zone."""
    moment = _clock.get()()
    assert moment.tzinfo is not None, "a clock must give times with a time zone"
    return moment


@contextmanager
def clock(tell: Callable[[], datetime] | datetime) -> Iterator[None]:
    """Go by the given clock, or stand still at the given time."""
    token = _clock.set((lambda: tell) if isinstance(tell, datetime) else tell)
    try:
        yield
    finally:
        _clock.reset(token)
