"""Addresses that hold a password, kept where Spark does not show them."""

from __future__ import annotations

import atexit
import os
import tempfile

from .options import absolute, has_password

_kept: dict[str, str] = {}


def hidden(address: str) -> str:
    """A value for the option `storeFrom`: a file that only this user can read, gone when this process ends."""
    place = _kept.get(address)
    if place is None:
        handle, path = tempfile.mkstemp(prefix="fencepost-store-")  # readable by its owner alone
        with os.fdopen(handle, "w") as file:
            file.write(address)
        atexit.register(_forget, path, os.getpid())
        place = _kept[address] = f"file:{path}"
    return place


def place_of(store: str) -> dict[str, str]:
    """The options that name the store to a reader or a writer, whatever its address holds."""
    # A path means a file as seen from here, wherever Spark runs.
    return {"storeFrom": hidden(store)} if has_password(store) else {"store": absolute(store)}


def _forget(path: str, process: int) -> None:
    if os.getpid() == process and os.path.exists(path):
        os.unlink(path)
