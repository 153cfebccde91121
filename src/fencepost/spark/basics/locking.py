"""One process at a time: a lock on a file, and waiting for it.

The operating system holds the lock on the open file. It ends with the process, however that ends; the file that stays
behind means nothing.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ...errors import StoreUnavailable
from ...interrupts import pause

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25


@contextmanager
def locked(path: Path, problem: str) -> Iterator[None]:
    """Hold the lock; raise `StoreUnavailable` with the problem if another process holds it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(problem) from None
        yield


@contextmanager
def patiently(hold: Callable[[], AbstractContextManager[None]], patience_s: float) -> Iterator[None]:
    """Enter the context, trying again while it raises `StoreUnavailable`, for at most `patience_s` seconds."""
    end = time.monotonic() + patience_s
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(hold())
                break
            except StoreUnavailable:
                if time.monotonic() >= end:
                    raise
            pause(PAUSE_S)
        yield
