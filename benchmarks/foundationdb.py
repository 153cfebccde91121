"""What an append costs on FoundationDB, by the number of its event's tags.

    python -m benchmarks.foundationdb

Counted, not timed: keys that are stored, conflict keys that are sent and never stored, and bytes
that count against the limit of a transaction. Next to them stands the power set, which a design
that stores its buckets would store.
"""

from __future__ import annotations

from fencepost import AppendCondition, Event, Query
from fencepost.commit import Append
from fencepost.engines.foundationdb.drafts import Draft
from fencepost.engines.foundationdb.keys import Keys

TAGS = (*range(11), 20)


def cost(tags: int) -> tuple[int, int, int, int, int]:
    """Tags, stored keys, conflict keys, bytes of the transaction, and buckets in the power set."""
    names = [f"entity:{number:08}" for number in range(tags)]
    event = Event("SomethingHappened", data=b"x" * 200, tags=names)
    condition = AppendCondition(Query.of(types={"SomethingHappened"}, tags=names[:1]))
    draft = Draft(Append((event,), (condition,)), Keys("wallets"), bytes(16))
    return tags, draft.stored_keys, draft.conflict_keys, draft.size, 2 * 2**tags


def table() -> str:
    lines = [
        "| tags | stored keys | conflict keys | bytes counted | buckets in the power set |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += ["| " + " | ".join(f"{value:,}" for value in cost(tags)) + " |" for tags in TAGS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
