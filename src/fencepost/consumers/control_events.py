"""The events that are recorded about consumers and the processes that run them.

They have the tag `fencepost.consumer:NAME`, and those about processes `fencepost.runner:SLOT`. Handlers of every event
do not get them. What they add up to is in `records`. Fields are only ever added, with a default, and readers ignore
fields that they do not know, so that processes of different versions can run side by side.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ..decisions import event, tag

NAME: Final = "fencepost.consumer"
LEASE: Final = "fencepost.lease"
RUNNER: Final = "fencepost.runner"
Name: TypeAlias = Annotated[str, tag(NAME)]


@event(type="fencepost.RunnerStarted", unknown_fields="ignore")
class RunnerStarted:
    """A process that runs consumers moves the heartbeat of this slot from now on."""

    slot: Annotated[str, tag(RUNNER)]
    holder: str
    lease_s: float


@event(type="fencepost.RunnerEnded", unknown_fields="ignore")
class RunnerEnded:
    """The process has ended, and its slot is free."""

    slot: Annotated[str, tag(RUNNER)]
    holder: str


@event(type="fencepost.WorkerJoined", unknown_fields="ignore")
class WorkerJoined:
    """A process takes its share of the partitions of the consumer."""

    consumer: Name
    holder: str
    slot: int
    session: int
    lease_s: float


@event(type="fencepost.WorkerLeft", unknown_fields="ignore")
class WorkerLeft:
    """The process takes no share any more: it has ended, or the process `by` has seen no heartbeat of it."""

    consumer: Name
    holder: str
    by: str


@event(type="fencepost.PartitionsChanged", unknown_fields="ignore")
class PartitionsChanged:
    """The events of the consumer are split in another way from now on."""

    consumer: Name
    partitions: int
    key: str
    by: str


@event(type="fencepost.LeaseTaken", unknown_fields="ignore")
class LeaseTaken:
    """A process leads the consumer, or one of its partitions, from now on.

    `query` is the consumer's query as JSON. `slot` and `session` say whose heartbeat keeps the lease alive.
    """

    consumer: Name
    holder: str
    lease_s: float
    query: str
    lease: Annotated[str, tag(LEASE)]
    slot: int = -1
    session: int = 0
    partition: int = 0
    partitions: int = 1
    key: str = ""


@event(type="fencepost.LeaseReleased", unknown_fields="ignore")
class LeaseReleased:
    """The leader has stopped; another process may lead at once."""

    consumer: Name
    holder: str
    partition: int = 0


@event(type="fencepost.ConsumerPaused", unknown_fields="ignore")
class ConsumerPaused:
    consumer: Name
    by: str
    reason: str = ""


@event(type="fencepost.ConsumerResumed", unknown_fields="ignore")
class ConsumerResumed:
    """The consumer goes on, after a pause or after it stopped because of a failure."""

    consumer: Name
    by: str


@event(type="fencepost.ConsumerReset", unknown_fields="ignore")
class ConsumerReset:
    """The consumer handles everything after `position` again."""

    consumer: Name
    position: int
    by: str


@event(type="fencepost.StepRequested", unknown_fields="ignore")
class StepRequested:
    """A paused consumer must handle one event."""

    consumer: Name
    by: str
    partition: int = 0


@event(type="fencepost.StepTaken", unknown_fields="ignore")
class StepTaken:
    """The leader has handled the event at `position` because of a request."""

    consumer: Name
    position: int
    partition: int = 0


@event(type="fencepost.ConsumerStopped", unknown_fields="ignore")
class ConsumerStopped:
    """Every attempt to handle the event at `position` failed; the consumer waits to be resumed."""

    consumer: Name
    position: int
    error: str
    attempts: int
    partition: int = 0


@event(type="fencepost.ConsumerStalled", unknown_fields="ignore")
class ConsumerStalled:
    """The consumer has events to handle, and has made no progress for `seconds`."""

    consumer: Name
    position: int
    seconds: float
    reason: str
    partition: int = 0


@event(type="fencepost.EventSetAside", unknown_fields="ignore")
class EventSetAside:
    """The event at `position` is a dead letter. `behind` is set if it was held back behind an earlier one."""

    consumer: Name
    position: int
    type: str
    keys: tuple[str, ...]
    error: str
    attempts: int
    behind: int | None = None


@event(type="fencepost.ReplayRequested", unknown_fields="ignore")
class ReplayRequested:
    """The dead letter of the event at `position` must be handled again."""

    consumer: Name
    position: int
    by: str


@event(type="fencepost.DeadLetterHandled", unknown_fields="ignore")
class DeadLetterHandled:
    """The replay of the event at `position` succeeded."""

    consumer: Name
    position: int


@event(type="fencepost.DeadLetterDiscarded", unknown_fields="ignore")
class DeadLetterDiscarded:
    """The event at `position` will not be handled."""

    consumer: Name
    position: int
    by: str


@event(type="fencepost.ItemHandled", unknown_fields="ignore")
class ItemHandled:
    """An automation has handled the event at `position`, or the row of that event, though older ones are pending."""

    consumer: Name
    item: Annotated[str, tag("fencepost.item")]
    position: int
    row: tuple[str, ...] = ()
