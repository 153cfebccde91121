"""The contract of a store, as tests that every engine must pass.

Each module tests one group of known failures of event stores, or one method of the public interface. The number in
the name of a test is the number of the known failure that it looks for.
"""

from .appending import Appending, Consumers
from .awaitable import Awaitable
from .base import Contract
from .closing import Closing, Durability
from .delivery import Delivery
from .input import Input
from .invented import ConflictsInvented
from .missed import ConflictsMissed
from .modelled import Matching, Modelled
from .reading import Reading
from .recorded_appends import RecordingContract, RestoringContract, SharedRecordingContract
from .records import RecordsContract
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
    ConflictsMissed,
    ConflictsInvented,
    Delivery,
    Input,
    Consumers,
    Appending,
    Reading,
    Subscribing,
    Closing,
    RecordsContract,
    Matching,
    Modelled,
):
    """Every promise of a store; see `fencepost.testing` for how an engine is bound to it."""


class DurableEventStoreContract(EventStoreContract, Durability):
    """The same for a store that outlives its handles and is shared by several: `open_again` gives another one."""

    durable = True
