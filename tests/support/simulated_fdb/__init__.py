"""A simulator of FoundationDB, in the process and deterministic: not FoundationDB.

`SimulatedCluster().open()` gives a database with the part of the Python binding's API that a
layer uses: transactions with read versions, conflict ranges and keys, snapshot reads, reads of
one's own writes, versionstamps, watches, key selectors, atomic operations, limits, and
`on_error` with the documented error codes. Everything that a real cluster leaves open is chosen
by a seed: commit versions, what shares a batch, how old a read version may be, which step of
which task comes next (`Schedule`), and which of them fails and how (`Faults`).

It claims what the documentation of FoundationDB and the sources of its client say, sentence by sentence in
tests/foundationdb/test_simulator.py and test_simulated_client.py. It has a clock of its own: transactions grow too old
and time out when the simulator lets time pass. Calls are answered within the call, or by a `NetworkThread`.

Not modelled: disks, processes and their failures, other than as an error of a call; several resolvers, which can report
conflicts without a cause (faults inject these); shards and load (benchmarks/shards.py has a model of them); the size of
replies in bytes; bounds on keys in conflict ranges; read-ahead; tenants; the directory layer; system and special keys;
the change of a value and back, which a watch of the real client may miss; causal_read_risky and cached read versions.
"""

from .api import KeySelector, StreamingMode
from .cluster import SimulatedCluster
from .errors import FDBError
from .faults import Fate, Fault, Faults
from .network import InTheCall, NetworkThread, TimedNetwork
from .schedule import Schedule
from .transaction import SimulatedDatabase, Transaction

__all__ = [
    "FDBError",
    "Fate",
    "Fault",
    "Faults",
    "InTheCall",
    "KeySelector",
    "NetworkThread",
    "Schedule",
    "SimulatedCluster",
    "SimulatedDatabase",
    "StreamingMode",
    "TimedNetwork",
    "Transaction",
]
