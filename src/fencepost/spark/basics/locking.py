"""One process at a time changes a lake or a view: a lock on a file, waiting for it, and work that begins again.

The operating system holds the lock on the open file. It ends with the process, however that ends; the file that stays
behind means nothing. An object store has no lock: there, work whose commit came too late begins again.
tests/spark/test_object_views.py and tests/spark/test_object_lakes.py hold back commits.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, TypeVar

from ...errors import StoreUnavailable
from ...interrupts import pause
from ...storage import Folder, ManifestChanged, Storage, busy

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25

Result = TypeVar("Result")


@contextmanager
def locked(storage: Storage, name: str, *, folder: str) -> Iterator[None]:
    """Hold the lock in the file `name` of a storage in a folder; raise `StoreUnavailable` if another process holds it.

    `folder`, below the storage, is made if it does not exist. An object store has no lock, and nothing is held.
    """
    if not isinstance(storage, Folder):
        yield
        return
    (storage.folder / folder).mkdir(parents=True, exist_ok=True)
    with (storage.folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(busy(storage)) from None
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


def changing(hold: Callable[[], AbstractContextManager[None]], work: Callable[[], Result], patience_s: float) -> Result:
    """Run `work` inside the context, and run it again if another process has committed a manifest meanwhile.

    `StoreUnavailable` is raised if others hold the lock, or have committed first each time, for `patience_s` seconds.
    """
    end: float | None = None
    while True:
        try:
            with patiently(hold, patience_s):
                return work()
        except ManifestChanged:
            end = time.monotonic() + patience_s if end is None else end
            if time.monotonic() >= end:
                raise
        pause(PAUSE_S)
