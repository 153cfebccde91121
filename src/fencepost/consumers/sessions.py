"""A session: what a consumer does under one lease, between the worker that drives it and the target.

The session of most consumers calls the handlers. That of a read model also keeps rows in memory, writes them before
the checkpoint, and forgets them when the transaction is rolled back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .. import SequencedEvent
from .event_handlers import Handlers

if TYPE_CHECKING:
    from .targets import Target


class Coroutines:
    """Runs what `async def` handlers return: on the program's event loop, or on one of the worker's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._own: asyncio.Runner | None = None

    def run(self, coroutine: Any) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
            return
        if self._own is None:
            self._own = asyncio.Runner()
        self._own.run(coroutine)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


class HandleAgain(Exception):
    """Raised by `flush`: the events of the transaction must be handled again at once, and none of them has failed."""


class Session:
    """Calls the handlers of a consumer."""

    uses_transaction = True
    """Whether a handler may use the transaction that it gets."""

    def __init__(self, handlers: Handlers) -> None:
        self.calls: Handlers | None = None
        """The call for each type, for a worker that calls them itself; None if `handle` does more."""
        self._handlers = handlers
        if type(self) is Session:
            self.calls = handlers
            self.uses_transaction = any(handler.takes_transaction for handler in handlers.all())

    def claimed(self, target: Target, position: int) -> None:
        """Called once, after the lease was claimed in the target; the position is where the consumer goes on."""

    def handle(self, event: SequencedEvent, transaction: Any) -> Any:
        """Handle the event; what an `async def` handler returns must be awaited by the caller."""
        return self._handlers[event.type](event, transaction)

    def flush(self, transaction: Any) -> None:
        """Called in the transaction, before its checkpoint is saved."""

    def rolled_back(self) -> None:
        """Called after the transaction was rolled back."""

    def caught_up(self, position: int) -> None:
        """Called outside of a transaction when every event up to the position, the head of a read, was handled."""

    def ended(self) -> None:
        """Called at the end of the lease, or before a new session after an error of the target."""
