"""A simulator of FoundationDB, in the process and deterministic: not FoundationDB.

`SimulatedCluster().open()` gives a database with the part of the Python binding's API that a
layer uses: transactions with read versions, conflict ranges and keys, snapshot reads, reads of
one's own writes, versionstamps, watches, key selectors, atomic operations, limits, and
`on_error` with the documented error codes. Everything that a real cluster leaves open is chosen
by a seed: commit versions, what shares a batch, how old a read version may be, which step of
which task comes next (`Schedule`), and which of them fails and how (`Faults`).

What it claims is what the documentation of FoundationDB says, sentence by sentence in
tests/foundationdb/test_simulator.py. It has no disk, no network and no clock: transactions grow
too old by versions or by a fault, never by waiting. A call is answered within the call, so it
knows no error of using a transaction while its commit is under way.
"""

from .api import KeySelector, StreamingMode
from .cluster import SimulatedCluster
from .errors import FDBError
from .faults import Fate, Fault, Faults
from .schedule import Schedule
from .transaction import SimulatedDatabase, Transaction

__all__ = [
    "FDBError",
    "Fate",
    "Fault",
    "Faults",
    "KeySelector",
    "Schedule",
    "SimulatedCluster",
    "SimulatedDatabase",
    "StreamingMode",
    "Transaction",
]
