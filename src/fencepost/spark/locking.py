"""One at a time: a lock on a file, and the patience to wait for it.

The lock is the system's, on an open file: it ends with the process, however that ends, and what is
left of the file means nothing.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ..errors import StoreUnavailable

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25


@contextmanager
def alone(path: Path, problem: str) -> Iterator[None]:
    """Hold the lock, or `StoreUnavailable` with the problem if another holds it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(problem) from None
        yield


@contextmanager
def patiently(hold: Callable[[], AbstractContextManager[None]], patience_s: float) -> Iterator[None]:
    """Hold what is not available yet; its own error when patience ends."""
    end = time.monotonic() + patience_s
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(hold())
                break
            except StoreUnavailable:
                if time.monotonic() >= end:
                    raise
            time.sleep(PAUSE_S)
        yield
