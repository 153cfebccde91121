"""What a `with` block sets for the decisions inside it: metadata of their events, and the clock of `now()`.

    with context(correlation_id=request_id, user="ada"), clock(datetime(2030, 1, 1, tzinfo=timezone.utc)):
        withdraw(store, ...)

Both apply to this thread or task, like any context variable. The clock does not change the time that the store records
for an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Final

from ..model import SequencedEvent

CORRELATION_ID: Final = "correlation_id"

_metadata: ContextVar[Mapping[str, str]] = ContextVar("fencepost-metadata", default=MappingProxyType({}))


@contextmanager
def context(*, caused_by: SequencedEvent | None = None, **names: str) -> Iterator[None]:
    """Add these names to the metadata of all events that decisions write inside the block.

    `caused_by` is the event that the block reacts to. It sets `causation_id`: the event's id, or its position if it has
    no id. It also sets `correlation_id`: that of the event or, if it has none, the causation id.
    """
    if caused_by is not None:
        cause = str(caused_by.position if caused_by.id is None else caused_by.id)
        correlation = caused_by.metadata.get(CORRELATION_ID, cause)
        names = {"correlation_id": correlation, "causation_id": cause, **names}
    token = _metadata.set({**_metadata.get(), **names})
    try:
        yield
    finally:
        _metadata.reset(token)


def current_metadata() -> Mapping[str, str]:
    """The metadata that the context adds to an event."""
    return _metadata.get()


_clock: ContextVar[Callable[[], datetime]] = ContextVar("fencepost-clock", default=lambda: datetime.now(timezone.utc))


def now() -> datetime:
    """The current time, with a time zone."""
    moment = _clock.get()()
    assert moment.tzinfo is not None, "a clock must return times with a time zone"
    return moment


@contextmanager
def clock(tell: Callable[[], datetime] | datetime) -> Iterator[None]:
    """Use the given clock, or a clock that always returns the given time."""
    token = _clock.set((lambda: tell) if isinstance(tell, datetime) else tell)
    try:
        yield
    finally:
        _clock.reset(token)
