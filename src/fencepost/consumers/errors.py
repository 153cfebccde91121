"""What the consumers layer raises, below the errors of the store.

    FencepostError
    └── ConsumerError
        ├── LeaseLost          another process leads the consumer now; the write was refused
        ├── ItemCancelled      an event that cancels the timer was stored before it fired
        ├── TargetRefused      the target of a consumer cannot be used
        ├── PartitionsDiffer   the consumer is declared with other partitions than it is recorded with
        ├── NoSuchConsumer     no process has ever run a consumer of this name on this store
        ├── CommandRefused     the state of the consumer does not allow the command
        └── WaitTimedOut       a read model did not reach a position in time

What a handler raises is not wrapped: it is retried, then stops the consumer or becomes a dead letter.
"""

from __future__ import annotations

from ..errors import FencepostError


class ConsumerError(FencepostError):
    """The root of the errors of consumers."""


class LeaseLost(ConsumerError):
    """The consumer is led under a newer lease, or was reset. The write that raised this changed nothing."""

    def __init__(self, consumer: str, token: int) -> None:
        super().__init__(
            f"consumer {consumer!r}: the lease with token {token} is over, because the consumer was taken over or "
            "reset; nothing was written"
        )
        self.consumer = consumer
        self.token = token


class ItemCancelled(ConsumerError):
    """An event that cancels the timer was stored before its decision, which was refused. The automation goes on."""

    def __init__(self, consumer: str, position: int) -> None:
        super().__init__(f"automation {consumer!r}: the event at position {position} has cancelled the timer")
        self.consumer = consumer
        self.position = position


class TargetRefused(ConsumerError):
    """The target of a consumer cannot be used; the message says why and what to do."""


class PartitionsDiffer(ConsumerError):
    """The code declares other partitions than the store has recorded, so it must not run."""

    def __init__(self, consumer: str, declared: str, recorded: str) -> None:
        super().__init__(
            f"consumer {consumer!r}: the code declares {declared}, but the store has recorded {recorded}; change the "
            "code, or change the record with `fencepost consumers repartition` or `repartition(...)`"
        )
        self.consumer = consumer
        self.declared = declared
        self.recorded = recorded


class NoSuchConsumer(ConsumerError):
    """No process has ever run a consumer of this name on this store."""

    def __init__(self, consumer: str) -> None:
        super().__init__(f"consumer {consumer!r}: no process has ever run it on this store; check the name")
        self.consumer = consumer


class CommandRefused(ConsumerError):
    """The state of the consumer does not allow the command; nothing was changed."""


class WaitTimedOut(ConsumerError):
    """A read model did not reach the position in time. The write itself is stored."""

    def __init__(self, consumer: str, position: int, reached: int, timeout_s: float) -> None:
        super().__init__(
            f"consumer {consumer!r}: did not reach position {position} within {timeout_s} s; it is at {reached}"
        )
        self.consumer = consumer
        self.position = position
        self.reached = reached
        self.timeout_s = timeout_s
