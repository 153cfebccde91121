"""The storage of a lake: functions that take a lake take its storage, a `Path` of a folder, or the text of a path or
URL. `fencepost.storage` has what a storage is; tests/spark/test_object_lakes.py has lakes on each kind of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from ...storage import Contents, Storage, storage_at
from .entries import MANIFEST

LAKE: Final = Contents(
    "lake", MANIFEST, argument="lake", writing="exporting into this lake", repair="run `fencepost lake verify`"
)

Place: TypeAlias = Storage | Path | str


def storage_of(place: Place) -> Storage:
    """The storage of a lake, which may be given as a path or a URL."""
    return storage_at(place, LAKE) if isinstance(place, (Path, str)) else place
