"""Targets: where the effects of a consumer go, and where its checkpoint is kept.

A target has one rule: the checkpoint is written in the same transaction as the effects, or after them, and never
before. Whatever is written is refused with `LeaseLost` if another process leads the consumer now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from .. import EventStore
from .control_state import checkpoint_name
from .leases import Lease
from .reactions import Reaction


class Target(Protocol):
    """What a runner needs of a target. One object serves one lease, in one thread."""

    transactional: bool
    """Whether a transaction that was not committed leaves no effects."""

    per_event: bool
    """Whether `begin_event` and `end_event` matter."""

    def claim(self, lease: Lease, start: int) -> int:
        """Make the lease's token the newest. Returns where to go on; `start` if there is no checkpoint yet."""

    def claim_others(self, names: Iterable[str], start: int) -> dict[str, int]:
        """Fence off the checkpoints of an earlier division, and return them."""

    def positions(self, names: Iterable[str]) -> dict[str, int]:
        """The checkpoints of other partitions; -1 for one that has none yet."""

    def transaction(self) -> Any:
        """A context manager that gives what handlers get, commits at its end, and rolls back on an error."""

    def begin_event(self, position: int, *, replay: bool = False) -> None:
        """Called before the handler of each event; `replay` says that the event is a dead letter."""
        return

    def end_event(self) -> bool:
        """Called after it. Whether the checkpoint was moved to this event."""
        return False

    def save(self, transaction: Any, position: int) -> None:
        """Move the checkpoint in the transaction."""

    def settle(self, transaction: Any, position: int) -> bool:
        """Note in the transaction that a dead letter is being handled. False: it was handled before."""

    def broken(self) -> bool:
        """Whether the connection is lost, so that an error is not the handler's."""
        return False

    def abandon(self) -> None:
        """Called by another thread when a handler hangs: release what its transaction holds, if possible."""
        return

    def close(self) -> None:
        """Release what the target has opened."""
        return


class StoreTarget(Target):
    """The checkpoint is kept in a store: at least once, or exactly once for reactions.

    The store belongs to the program, so it is not closed, and the late append of a handler that hangs is refused.
    """

    transactional = False
    per_event = True

    def __init__(self, store: EventStore) -> None:
        self.store = store

    def claim(self, lease: Lease, start: int) -> int:
        self._lease = lease
        self._name = checkpoint_name(lease.name, lease.generation)
        self._start = start
        self._reaction = Reaction(self.store, lease)
        return max(self.store.checkpoint(self._name), start)

    def claim_others(self, names: Iterable[str], start: int) -> dict[str, int]:
        """No write is necessary: the record that changed the division has ended the leases of the earlier one."""
        return self.positions(names)

    def positions(self, names: Iterable[str]) -> dict[str, int]:
        generation = self._lease.generation
        return {name: max(self.store.checkpoint(checkpoint_name(name, generation)), self._start) for name in names}

    @contextmanager
    def transaction(self) -> Iterator[Reaction]:
        yield self._reaction

    def begin_event(self, position: int, *, replay: bool = False) -> None:
        if replay:
            self._reaction.begin(self._replay_name(position), 1)
        else:
            self._reaction.begin(self._name, position)

    def end_event(self) -> bool:
        return self._reaction.appended

    def save(self, transaction: Reaction, position: int) -> None:
        self._lease.append([], (self._name, position))

    def settle(self, transaction: Reaction, position: int) -> bool:
        return self.store.checkpoint(self._replay_name(position)) == 0

    def _replay_name(self, position: int) -> str:
        """The checkpoint that the append of a replayed reaction carries: the consumer's own is beyond the event."""
        return f"{self._name}#replayed/{position}"
