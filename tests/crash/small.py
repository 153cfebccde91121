"""The SQLite engine with small constants, so that a few events take it through everything it does.

With these, every few appends flush the tail, a few more fill a generation, merging goes on at each
commit, and the write-ahead log is checkpointed again and again.
"""

from typing import Any, Protocol

from fencepost.engines.sqlite import engine, generations, merging, reading

SMALL: list[tuple[Any, str, int]] = [
    (engine, "TAIL_EVENTS", 4),
    (engine, "UNINDEXED_EVENTS", 3),
    (reading, "UNINDEXED_EVENTS", 3),
    (reading, "SHORT_READ", 6),
    (engine, "CHECKPOINT_PAGES", 30),
    (engine, "MERGE_REST", 0),
    (reading, "PAGE_EVENTS", 5),
    (engine, "ROWS", 3),
    (generations, "ROWS", 3),
    (generations, "RARE", 2),
    (generations, "GENERATION_EVENTS", 8),
    (merging, "MERGED", 2),
    (merging, "STEP_POSTINGS", 24),
]


class Set(Protocol):
    def __call__(self, owner: Any, name: str, value: int, /) -> None: ...


def shrink(set: Set = setattr) -> None:
    """In a process of its own; in a test, `set` is `monkeypatch.setattr`."""
    for owner, name, number in SMALL:
        assert hasattr(owner, name), f"{owner.__name__} has no {name} any more"
        set(owner, name, number)
