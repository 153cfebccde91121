"""How an append's writes fall on the shards of a FoundationDB cluster: a model, and the same on the simulator.

    python -m benchmarks.shards

FoundationDB cuts the sorted keys into shards of about the same size, and one team of storage servers serves a shard.
The model takes the keys that the engine writes for a sample of appends and sorts the places at which keys are added. It
gives each place the bytes that 100 million events would have stored there, and cuts all of it into shards. A place gets
its writes at its end, in one shard. The busiest shard says how far a layout goes: FoundationDB's documentation gives
20,000 writes a second for one storage process. It is a model of where writes go; nothing was measured on a cluster.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.simulated_fdb import FDBError, SimulatedCluster

from fencepost import Event, EventStore
from fencepost.core.verdicts import Append
from fencepost.engines.foundationdb.binding import Connection
from fencepost.engines.foundationdb.draft import Draft
from fencepost.engines.foundationdb.engine import FoundationDBEngine
from fencepost.engines.foundationdb.layout import UNSTAMPED, VERSIONSTAMP, Keys

STORED_EVENTS = 100_000_000
SHARD_BYTES = 200_000_000
SAMPLE = 8_000
WRITES_PER_S = 20_000  # of one storage process with the ssd engine, as FoundationDB's documentation says
RATES = (10 * 1_000, 100 * 1_000)
TYPES = 10
ENTITIES = 1_000_000


@dataclass(frozen=True, slots=True)
class Write:
    """A key that an append writes: below which prefix, how many bytes stay there, and how often it is written."""

    place: bytes
    stored_bytes: int
    times: int = 1


def events(seed: int, *, shared_tag: bool = False) -> Iterator[Event]:
    """Events of ten types, with two tags each of a million; and one tag that all of them have, if asked for."""
    chance = random.Random(seed)
    while True:
        tags = {f"{kind}:{chance.randrange(ENTITIES)}" for kind in ("order", "wallet")}
        yield Event(
            f"Type{chance.randrange(TYPES)}",
            data=chance.randbytes(200),
            tags=tags | ({"tenant:1"} if shared_tag else set()),
        )


def writes_of(event: Event, number: int, partitions: int) -> Iterator[Write]:
    """The keys that the engine writes."""
    keys = _keys(partitions)
    partition = number % partitions
    draft = Draft(Append((event,), ()), keys, number.to_bytes(16, "big"), partition=partition)
    for key in draft.mutations:
        prefix, stamp, rest = key.partition(VERSIONSTAMP + UNSTAMPED)
        if stamp:
            record = 300 if prefix == keys.logs[partition] else 0
            yield Write(prefix, len(prefix) + len(stamp) + len(rest) - 4 + record)
        else:
            yield Write(key, 0, times=2 if key == draft.token else 1)


def writes_per_append(appends: Iterable[Iterable[Write]], count: int) -> list[float]:
    """How many writes of an append fall on each shard, the busiest first."""
    places: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for append in appends:
        for write in append:
            place = places[write.place]
            place[0] += write.times
            place[1] += write.stored_bytes
    shard_bytes = SHARD_BYTES * count / STORED_EVENTS
    shards: defaultdict[int, int] = defaultdict(int)
    offset = 0
    for _, (times, stored_bytes) in sorted(places.items()):
        offset += stored_bytes
        shards[int(offset / shard_bytes)] += times
    return sorted((times / count for times in shards.values()), reverse=True)


@cache
def _keys(partitions: int) -> Keys:
    return Keys("wallets", partitions)


@cache
def model(partitions: int, *, shared_tag: bool = False) -> list[float]:
    sample = events(1, shared_tag=shared_tag)
    numbered = ((next(sample), number) for number in range(SAMPLE))
    return writes_per_append((writes_of(*each, partitions) for each in numbered), SAMPLE)


def simulated(partitions: int, *, stored: int = 3_000, more: int = 320, shards: int = 100) -> float:
    """The share of writes that the busiest shard gets, counted on the simulator.

    The keys of a filled store are cut into shards of equal bytes, and `more` appends are counted where they fall.
    """
    cluster = SimulatedCluster(1)
    store = EventStore(FoundationDBEngine(Connection(cluster.open(), FDBError), partitions=partitions))
    sample = events(1)
    for _ in range(stored):
        store.append([next(sample)])
    rows = _rows(cluster)
    total = sum(len(key) + len(value) for key, value in rows.items())
    bounds, size = [], 0
    for key, value in sorted(rows.items()):
        size += len(key) + len(value)
        if size > total / shards:
            bounds.append(key)
            size = 0
    counts: defaultdict[int, int] = defaultdict(int)
    for _ in range(more):
        store.append([next(sample)])
    written = {key for key, value in _rows(cluster).items() if rows.get(key) != value}
    for key in written:
        counts[sum(bound < key for bound in bounds)] += 1
    return max(counts.values()) / len(written)


def _rows(cluster: SimulatedCluster) -> dict[bytes, bytes]:
    cluster.advance(1)
    return {row.key: row.value for row in cluster.open().create_transaction().get_range(b"", b"\xff")}


LAYOUTS = (
    ("1 partition", 1, False),
    ("16 partitions", 16, False),
    ("64 partitions", 64, False),
    ("16 partitions, and a tag that every event has", 16, True),
)


def table() -> str:
    lines = [
        "| layout | writes per append | in the busiest shard | at 10 x 1,000 appends/s | at 100 x 1,000 appends/s "
        "| appends/s at 20,000 writes/s in a shard |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, partitions, shared_tag in LAYOUTS:
        shards = model(partitions, shared_tag=shared_tag)
        busiest = shards[0]
        at_rates = " | ".join(f"{busiest * rate:,.0f}/s" for rate in RATES)
        lines.append(
            f"| {name} | {sum(shards):.1f} | {busiest:.2f} | {at_rates} | {round(WRITES_PER_S / busiest, -2):,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    for number in (1, 16):
        print(
            f"on the simulator, {number} partitions: {simulated(number):.1%} of all writes in the busiest of 100 shards"
        )
