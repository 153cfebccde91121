"""What an append costs on FoundationDB, by the number of its event's tags, and a read, by its types.

    python -m benchmarks.foundationdb

Counted, not timed: keys that are stored, conflict keys that are sent and never stored, and bytes
that count against the limit of a transaction. Next to them stands the power set, which a design that stores its buckets
would store.
"""

from __future__ import annotations

import sys
from types import FrameType

from tests.support.simulated_fdb import FDBError, SimulatedCluster

from fencepost import AppendCondition, Event, EventStore, Query
from fencepost.core.verdicts import Append
from fencepost.engines.foundationdb.binding import Connection
from fencepost.engines.foundationdb.draft import Draft
from fencepost.engines.foundationdb.engine import FoundationDBEngine
from fencepost.engines.foundationdb.judgement import ReadBuckets
from fencepost.engines.foundationdb.layout import Keys
from fencepost.engines.foundationdb.postings import Postings
from fencepost.engines.foundationdb.transactions import RangeReader

TAGS = (*range(11), 20)
READ = ((100, 16, 500), (1_000, 16, 500), (1_000, 64, 500), (1_000, 16, 5_000))  # types, partitions, matches


def cost(tags: int) -> tuple[int, ...]:
    """Tags, stored keys, keys written, conflict ranges, bytes, and the power set."""
    names = [f"entity:{number:08}" for number in range(tags)]
    event = Event("SomethingHappened", data=b"x" * 200, tags=names)
    condition = AppendCondition(Query.of(types={"SomethingHappened"}, tags=names[:1]))
    append, keys = Append((event,), (condition,)), Keys("wallets")
    reads = ReadBuckets(append, keys).keys(0)
    draft = Draft(append, keys, bytes(16), reads=reads)
    written = len(draft.mutations)
    return tags, draft.stored_keys, written, draft.conflict_keys + written + len(reads) + 1, draft.size, 2 * 2**tags


def reading_cost(types: int, partitions: int, matches: int) -> tuple[int, int]:
    """How often a read of the types looks at a stream of postings, and how many range reads it begins."""
    cluster = SimulatedCluster(1)
    store = EventStore(FoundationDBEngine(Connection(cluster.open(), FDBError), partitions=partitions))
    names = [f"Type{number:04}" for number in range(types)]
    for number in range(matches):
        store.append([Event(names[number % types])])
    looked = begun = 0

    def count_calls(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked, begun
        if event == "call" and frame.f_code is Postings.prime.__code__:
            looked += 1
        elif event == "call" and frame.f_code is RangeReader.begin.__code__:
            begun += 1

    sys.setprofile(count_calls)
    try:
        found = sum(1 for _ in store.read(Query.of(types=names)))
    finally:
        sys.setprofile(None)
    assert found == matches
    return looked, begun


def reading_table() -> str:
    lines = [
        "| types | partitions | streams | matches | looks at a stream | range reads begun |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for case in READ:
        types, partitions, matches = case
        numbers = types, partitions, types * partitions, matches, *reading_cost(*case)
        lines.append("| " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines)


def table() -> str:
    lines = [
        "| tags | stored keys | keys written | conflict ranges | bytes counted | buckets in the power set |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join(f"{value:,}" for value in cost(tags)) + " |" for tags in TAGS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    print()
    print(reading_table())
