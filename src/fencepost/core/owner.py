"""Whether a store may be used: not after `close`, and not in a forked child.

A fork copies a store's memory, but not its threads and POSIX locks, and the child shares its sockets with the parent.
So every object that holds one of these has an `Owner`, and refuses to work in another process. The tests named
test_fork.py check this for each engine.
"""

from __future__ import annotations

import os
from typing import Final

from ..errors import StoreClosed

CLOSED: Final = "the store is closed"
FORKED: Final = (
    "the store was opened in the process that this process was forked from: fork before you open the store, "
    "or start processes with multiprocessing's 'spawn' or 'forkserver'"
)

_this_process = os.getpid()  # kept because every call of a store checks it, and a system call takes longer


class Owner:
    """Remembers the process that created it, and whether it was closed."""

    __slots__ = ("_closed", "_process")

    def __init__(self) -> None:
        self._process = _this_process
        self._closed = False

    @property
    def is_this_process(self) -> bool:
        return _this_process == self._process

    def check(self) -> None:
        """Raise `StoreClosed` after `close`, and in any other process."""
        if self._closed:
            raise StoreClosed(CLOSED)
        if _this_process != self._process:
            raise StoreClosed(FORKED)

    def close(self) -> bool:
        """Whether the caller must close what it owns: once, and only in the process that created it."""
        if self._closed or _this_process != self._process:
            return False
        self._closed = True
        return True


def _after_fork() -> None:
    global _this_process
    _this_process = os.getpid()


if hasattr(os, "register_at_fork"):  # where a process can fork
    os.register_at_fork(after_in_child=_after_fork)
