"""The SQLite engine with small sizes, so that a few events take it through everything it does.

With these, every few appends flush the tail, a few more fill a generation, merging goes on at each
commit, and the write-ahead log is checkpointed again and again.
"""

from typing import Any, Protocol

from fencepost.engines.sqlite import sizes

SMALL = {
    "TAIL_EVENTS": 4,
    "UNINDEXED_EVENTS": 3,
    "SHORT_EVENTS": 6,
    "CHECKPOINT_PAGES": 30,
    "MERGE_REST": 0,
    "SCAN_EVENTS": 5,
    "INSERT_ROWS": 3,
    "RARE": 2,
    "LEAPFROG_TERMS": 3,
    "GENERATION_EVENTS": 8,
    "MERGED": 2,
    "STEP_POSTINGS": 24,
}


class Set(Protocol):
    def __call__(self, owner: Any, name: str, value: int, /) -> None: ...


def shrink(set: Set = setattr) -> None:
    """In a process of its own; in a test, `set` is `monkeypatch.setattr`."""
    for name, number in SMALL.items():
        assert hasattr(sizes, name), f"{name} is not a size of the engine any more"
        set(sizes, name, number)
