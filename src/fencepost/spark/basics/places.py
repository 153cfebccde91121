"""Which store an option or argument names, and where an address with a password is kept.

Paths are made absolute where the caller names them, so that they mean the same file in every process. Spark shows
options in plans, in its UI and in its event log. An address that holds a password is therefore written to a file
that only this user can read, and the option `storeFrom` names that file. tests/spark/slow/test_secrets.py checks it.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ...engine import Address, checked_position
from ...errors import InvalidInput
from ..lake_kind import LAKE
from ..location import local_path, location_of

if TYPE_CHECKING:  # workers need neither deltalake nor the reader of Parquet
    from ..lake_engine.files import LakeFile

_kept: dict[str, str] = {}


@dataclass(frozen=True)
class LakePart:
    """The beginning of a log, up to `up_to`, as files of a lake. A file in the list never changes."""

    folder: str  # or the URL of a prefix in an object store
    files: tuple[LakeFile, ...]
    up_to: int


@dataclass(frozen=True)
class Snapshot:
    """A store up to a position. Functions that take a store also take a snapshot, and read no event above it.

    With a `lake`, they read the events up to the lake's position from its files, and only later ones from the store.
    """

    address: Address
    up_to: int
    lake: LakePart | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of `spark.read.format("fencepost")` for this snapshot; that format reads the store alone."""
        return {**place_of(self.address), "upTo": str(self.up_to)}


Store: TypeAlias = str | os.PathLike[str] | Address | Snapshot


def address_of(store: Store) -> Address:
    """The address, with an absolute path. `file:` URLs are paths here, as elsewhere in Spark."""
    if isinstance(store, Snapshot):
        return store.address
    if isinstance(store, str):
        scheme, _, rest = store.partition(":")
        if scheme == "file":
            return Address.parse(Path(local_path(store, "store"))).absolute()
        if scheme in LAKE.schemes:
            store = f"{scheme}:{location_of(rest, 'store')}"
    return Address.parse(store).absolute()


def bounds_of(store: Store, up_to: int | None) -> tuple[Address, int | None]:
    """The address, and the position that reads must not pass, if there is one."""
    limits = [store.up_to] if isinstance(store, Snapshot) else []
    limits += [] if up_to is None else [checked_position(up_to, "up_to")]
    return address_of(store), min(limits, default=None)


def place_of(store: Store) -> dict[str, str]:
    """The options that name the store to a reader or a writer, whether or not its address holds a password."""
    address = address_of(store)
    return {"storeFrom": _hidden(address.text)} if address.has_secret else {"store": address.text}


def address_from(place: str) -> Address:
    """The address in a file or an environment variable of this process, which `storeFrom` names."""
    kind, _, name = place.partition(":")
    if kind == "env" and name:
        text = os.environ.get(name, "")
        problem = f"there is no environment variable {name} where Spark's driver runs"
    elif kind == "file" and name:
        try:
            text = Path(name).read_text(encoding="utf-8", errors="surrogateescape").strip()
            problem = f"{name} is empty"
        except OSError as error:
            text, problem = "", f"{name}: {error.strerror}"
    else:
        raise InvalidInput("option 'storeFrom'", "file:PATH or env:NAME is needed")
    if not text:
        raise InvalidInput("option 'storeFrom'", problem)
    return address_of(text)


def _hidden(address: str) -> str:
    """A file that holds the address, readable by this user alone, deleted when this process ends."""
    place = _kept.get(address)
    if place is None:
        handle, path = tempfile.mkstemp(prefix="fencepost-store-")  # mkstemp lets only the owner read
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(address)
        atexit.register(_delete, path, os.getpid())
        place = _kept[address] = f"file:{path}"
    return place


def _delete(path: str, process: int) -> None:
    if os.getpid() == process and os.path.exists(path):
        os.unlink(path)
