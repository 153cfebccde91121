"""`Reaction`: the store as a handler sees it, whose append carries the consumer's checkpoint.

    @consumer("welcome")
    def welcome(event: StudentSubscribed, store: Reaction) -> None:
        greet(store, Greeting(event.student_id))        # a decision, or store.append(...)

The append, the checkpoint and the check of the fencing token are one transaction, so the reaction to an event is
stored exactly once: if the process dies before, the next one reacts; if it dies after, the checkpoint says so. A second
append for the same event would break this, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import AppendCondition, Delete, Event, EventStore, Placed, Put, Query
from ..errors import CheckpointBehind, ConditionFailed
from .errors import ConsumerError, ItemCancelled, LeaseLost
from .leases import Lease


class Reaction(EventStore):
    """An `EventStore` for the handler of one event: it reads as always, and makes one append."""

    def __init__(self, store: EventStore, lease: Lease) -> None:
        super().__init__(store)
        self.observed_as = store
        self._lease = lease
        self.begin("", 0)

    def begin(self, checkpoint: str, position: int) -> None:
        """From now on, the append carries this checkpoint."""
        self.begin_item(checkpoint=(checkpoint, position))

    def begin_item(
        self,
        *,
        checkpoint: tuple[str, int] | None = None,
        record: Event | None = None,
        not_done: AppendCondition | None = None,
        not_cancelled: AppendCondition | None = None,
    ) -> None:
        """From now on, the append carries the checkpoint or the record of an automation's item.

        It is refused if another append has carried the record, or if an event that cancels the item was stored.
        """
        self._checkpoint, self._record = checkpoint, record
        self._not_done, self._not_cancelled = not_done, not_cancelled
        self.appended = False

    def settle(self) -> None:
        """Append the record and the checkpoint alone, because the handler has appended nothing."""
        if not self.appended:
            self.append([])

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
        records: Iterable[Put | Delete] = (),
    ) -> Placed:
        """As `EventStore.append`, together with the consumer's checkpoint, and refused if the lease is lost."""
        if self.appended:
            raise ConsumerError(
                f"consumer {self._lease.consumer!r}: a second append for one event; put all "
                "events of the reaction into one append, or let the first event lead to the second"
            )
        if checkpoint is not None:
            raise ConsumerError(
                f"consumer {self._lease.consumer!r}: the append of a reaction carries its own checkpoint"
            )
        if condition is None:
            given: list[AppendCondition] = []
        else:
            given = [condition] if isinstance(condition, AppendCondition) else list(condition)
        added = [each for each in (self._not_done, self._not_cancelled) if each is not None]
        recorded = [] if self._record is None else [self._record]
        try:
            placed = super().append(
                [*events, *recorded],
                [*given, self._lease.condition, *added],
                unless=unless,
                checkpoint=self._checkpoint,
                records=records,
            )
        except ConditionFailed as failed:
            # Identity is not enough: the engine may return an equal condition.
            if failed.condition not in given and failed.condition == self._not_cancelled:
                raise ItemCancelled(self._lease.consumer, failed.conflict.position) from None
            if failed.condition not in given and failed.condition in (self._lease.condition, self._not_done):
                raise LeaseLost(self._lease.consumer, self._lease.token) from None
            raise
        except CheckpointBehind:
            raise LeaseLost(self._lease.consumer, self._lease.token) from None
        self.appended = not placed.already
        if recorded and self.appended and placed.first < placed.last:
            return Placed(placed.first, placed.last - 1)  # without the record, of which the caller knows nothing
        return placed

    def close(self) -> None:
        """Nothing: the store belongs to the program."""
