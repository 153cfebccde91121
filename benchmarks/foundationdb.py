"""What an append costs on FoundationDB, by the number of its event's tags.

    python -m benchmarks.foundationdb

Counted, not timed: keys that are stored, conflict keys that are sent and never stored, and bytes
that count against the limit of a transaction. The columns "before" are those of format 1, which had
one partition and no postings for a tag with a type. Next to them stands the power set, which a design
that stores its buckets would store.
"""

from __future__ import annotations

from fencepost import AppendCondition, Event, Query
from fencepost.core.judging import Append
from fencepost.engines.foundationdb.drafts import Draft
from fencepost.engines.foundationdb.keys import Keys
from fencepost.engines.foundationdb.rarity import ReadBuckets

TAGS = (*range(11), 20)
# Format 1 counted these with the same event and condition, up to the commit that introduced format 2.
BYTES_BEFORE = dict(
    zip(
        TAGS,
        (1_827, 2_420, 3_323, 4_567, 6_153, 8_081, 10_351, 12_963, 15_917, 19_213, 22_851, 78_042),
        strict=True,
    )
)


def cost(tags: int) -> tuple[int, ...]:
    """Tags; stored keys, keys written and conflict ranges, each before and after; bytes likewise; the power set."""
    names = [f"entity:{number:08}" for number in range(tags)]
    event = Event("SomethingHappened", data=b"x" * 200, tags=names)
    condition = AppendCondition(Query.of(types={"SomethingHappened"}, tags=names[:1]))
    append, keys = Append((event,), (condition,)), Keys("wallets")
    reads = ReadBuckets(append, keys).keys(0)
    draft = Draft(append, keys, bytes(16), reads=reads)
    stored, written = draft.stored_keys, len(draft.mutations)
    ranges = draft.conflict_keys + written + len(reads) + 1
    fewer = tags  # the postings of a tag with a type are new
    before = (stored - fewer, written - fewer, ranges - fewer, BYTES_BEFORE[tags])
    after = (stored, written, ranges, draft.size)
    return tags, *(value for pair in zip(before, after, strict=True) for value in pair), 2 * 2**tags


def table() -> str:
    lines = [
        "| tags | stored keys before | after | keys written before | after | conflict ranges before | after "
        "| bytes counted before | after | buckets in the power set |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join(f"{value:,}" for value in cost(tags)) + " |" for tags in TAGS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
