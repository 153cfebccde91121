"""The contract of a store as tests that any engine can be put under.

Each module holds one group of what breaks event stores, or one verb of the public contract; a
test that is named after a known way to break a store begins with that way's number.
"""

from .appending import Appending, Consumers
from .awaitable import Awaitable
from .base import Contract
from .closing import Closing, Durability
from .delivery import Delivery
from .input import Input
from .invented import ConflictsInvented
from .missed import ConflictsMissed
from .modelled import Modelled
from .reading import Reading
from .recording import RecordingContract, RestoringContract, SharedRecordingContract
from .subscribing import Subscribing

__all__ = [
    "Awaitable",
    "Contract",
    "DurableEventStoreContract",
    "EventStoreContract",
    "RecordingContract",
    "RestoringContract",
    "SharedRecordingContract",
]


class EventStoreContract(
    ConflictsMissed, ConflictsInvented, Delivery, Input, Consumers, Appending, Reading, Subscribing, Closing, Modelled
):
    """Every promise of a store; see `fencepost.testing` for how an engine is bound to it."""


class DurableEventStoreContract(EventStoreContract, Durability):
    """The same for a store that outlives its handles and is shared by several: `open_again` gives another one."""

    durable = True
