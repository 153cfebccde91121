"""A view on disk: layers of states, and a manifest that says which of them make up a version.

    <folder>/view.json              the projection, and every version: its position, its layers
    <folder>/layers/<name>/         Parquet files: the keys that one refresh has changed, or all of them

A refresh adds a layer; the newest layer that has a key has its state. A layer is there whole, and
on disk, before the manifest names it, and the manifest is replaced in one step: so a refresh that
is killed leaves the old versions, and at worst a layer that the next refresh removes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from ..errors import FormatUnsupported, InvalidInput, StoreCorrupt
from .lake_files import sync_folder, write_in_one_step
from .locking import alone

FORMAT: Final = 1
MANIFEST: Final = "view.json"
LAYERS: Final = "layers"
LOCK: Final = "refresh.lock"
PATTERNS: Final = "*?[{\\"  # in a path that is read, Spark takes them for a pattern


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of its folder
    rows: int


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The view at a position: the union of its layers, in which newer ones win."""

    position: int
    digest: str  # of the event at the position, to know the log again
    layers: tuple[Layer, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    projection: str
    fingerprint: str  # of the code that has folded it: another folds everything anew
    columns: str  # the schema of the layers, as JSON
    versions: tuple[Version, ...] = ()  # by position

    def before(self, position: int) -> Version | None:
        """The newest version that is not above the position."""
        found = [version for version in self.versions if version.position <= position]
        return found[-1] if found else None


def check_folder(folder: Path) -> None:
    """Refuse a name that Spark would write to and then not find."""
    found = sorted(set(PATTERNS) & set(str(folder)))
    if found:
        raise InvalidInput(
            "at", f"{folder} has {' and '.join(found)} in it, which Spark takes for a pattern: rename it"
        )


def read_manifest(folder: Path) -> Manifest | None:
    """None: there is no view yet."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        version = int(bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))))
        if version > FORMAT:
            raise FormatUnsupported(
                f"{path}: written in format {version}; this version of Fencepost reads up to {FORMAT}: "
                "upgrade Fencepost"
            )
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorrupt(f"{path}: not a view's manifest: {error}") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_in_one_step(folder / MANIFEST, manifest)


@contextmanager
def refreshing(folder: Path) -> Iterator[None]:
    """One refresh at a time: two would each take the other's version away. Ends with the process, however it ends."""
    (folder / LAYERS).mkdir(parents=True, exist_ok=True)
    with alone(folder / LOCK, f"{folder}: another process is refreshing this view; try again later"):
        yield


def settled(folder: Path, name: str) -> Layer:
    """The layer that Spark has written, on disk now, and how many rows it has."""
    rows = 0
    place = folder / LAYERS / name
    for path in sorted(place.glob("*.parquet")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        rows += pq.read_metadata(path).num_rows
    sync_folder(place)
    sync_folder(folder / LAYERS)
    return Layer(name=name, rows=rows)


def layer_place(folder: Path, name: str) -> str:
    """As Spark names it: with every character as it is, since it decodes none."""
    return f"file:{folder / LAYERS / name}"


def sweep(folder: Path, kept: Sequence[Version]) -> None:
    """Remove the layers that no version has: of versions that have gone, and of refreshes that were killed."""
    names = {layer.name for version in kept for layer in version.layers}
    for place in (folder / LAYERS).iterdir():
        if place.name not in names:
            shutil.rmtree(place, ignore_errors=True)
