"""The tail that the committing thread changes and all reading threads see.

Readers take the current `View`, a tuple, without a lock. Only a thread that holds the store's write lock replaces the
view or adds to its tail. Invariant: the tail has every event up to `committed`, and readers search no further. A tail
that an interrupt may have left half changed is dropped, and read from the file again. tests/sqlite/test_interrupts.py
checks this.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from ...model import decode_tags
from .event_rows import newer_rows
from .generations import indexed_up_to
from .layout import ID
from .tail import Tail


class View(NamedTuple):
    """A tail, and the position up to which it is committed.

    `older` is the tail before this one, whose events are on disk by now. A condition or a read that begins a little
    below the floor of the tail is answered from it. The head of `older` is at or above the floor of `tail`.
    """

    tail: Tail
    committed: int
    older: Tail | None


class SharedTail:
    view: View

    def __init__(self, path: str) -> None:
        self._path = path
        self.reset(0)

    def catch_up(self, connection: apsw.Connection) -> None:
        """Read what other processes have appended, or have moved from the tail to the generations."""
        tail, committed, older = self.view
        indexed = indexed_up_to(connection)
        if indexed > tail.floor:
            older = tail if committed >= indexed else None
            tail, committed = Tail(indexed), indexed
        try:
            for row in newer_rows(connection, committed, self._path):
                _, type, tags, *_ = row
                tail.add(type, decode_tags(tags), row[ID], row)
        except BaseException:
            self.reset(tail.floor)
            raise
        self.view = View(tail, tail.head, older)

    def mark_committed(self) -> None:
        """Show readers everything that was added."""
        tail, _, older = self.view
        self.view = View(tail, tail.head, older)

    def take_back(self, tail: Tail, committed: int) -> None:
        """Remove staged events. If an interrupt comes meanwhile, readers have a new, empty tail."""
        view = self.view
        self.reset(tail.floor)
        tail.cut(committed)
        self.view = view

    def recover(self) -> None:
        """Drop the tail if an interrupt came between adding events and marking them as committed."""
        tail, committed, _ = self.view
        if tail.head != committed:
            self.reset(tail.floor)

    def reset(self, floor: int) -> None:
        """Begin with an empty tail. The next commit collides, and so reads from the file what the tail lacks."""
        self.view = View(Tail(floor), floor, None)
