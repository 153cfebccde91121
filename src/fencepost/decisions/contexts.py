"""Context: why an event happened, carried into its metadata without being passed along.

    with context(correlation_id=request_id, user="ada"):
        withdraw(store, ...)

All decisions inside put these names into the metadata of their events. `caused_by(event)` is the
context for reacting to an event: it keeps the correlation and names the event as the cause. It
flows with the thread or task, as any context variable does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from ..model import SequencedEvent

CORRELATION_ID: Final = "correlation_id"
CAUSATION_ID: Final = "causation_id"

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_metadata: ContextVar[Mapping[str, str]] = ContextVar("fencepost-metadata", default=_NONE)


@contextmanager
def context(**names: str) -> Iterator[None]:
    """Add to the metadata of all events that decisions write inside."""
    token = _metadata.set({**_metadata.get(), **names})
    try:
        yield
    finally:
        _metadata.reset(token)


@contextmanager
def caused_by(event: SequencedEvent) -> Iterator[None]:
    """The context for what is done because of the event.

    The cause is named by its id, or by its position if it has none. An event without a
    correlation begins one of its own.
    """
    cause = str(event.position if event.id is None else event.id)
    correlation = event.metadata.get(CORRELATION_ID, cause)
    with context(correlation_id=correlation, causation_id=cause):
        yield


def current_metadata() -> Mapping[str, str]:
    """What the context adds to an event."""
    return _metadata.get()
