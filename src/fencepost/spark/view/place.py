"""What a view asks of the place that it is kept at, and the manifest that describes a kept view.

A place saves the changed rows and the new position together or not at all. So a refresh that is killed has not
happened, and a reader sees the view before a refresh or after it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ...storage import VersionedManifest

FORMAT: Final = 1
GENERATION_LENGTH: Final = 16


class LayerFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of a layer."""

    path: str  # relative to the view
    rows: int
    bytes: int


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of Parquet files: the keys that one refresh changed, or all keys."""

    name: str
    rows: int
    files: tuple[LayerFile, ...] | UnsetType = UNSET  # in an object store; elsewhere all files in the folder


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The view at a position. For each key, the newest of its layers that has the key counts."""

    position: int
    digest: str  # of the event at the position, to recognise the log
    layers: tuple[Layer, ...]
    changes: Layer | None = None  # what the refresh changed, if it recorded that


class ViewManifest(VersionedManifest, frozen=True, kw_only=True):
    """The projection of a view, and its versions."""

    format: int = FORMAT
    projection: str
    fingerprint: str  # of the code that folded it; other code folds everything again
    columns: str  # the schema of the layers, as JSON
    versions: tuple[Version, ...] = ()  # by position

    @property
    def generation(self) -> str:
        """Names the code and the columns: the same log and generation give the same rows at every position."""
        return sha256(f"{self.fingerprint} {self.columns}".encode()).hexdigest()[:GENERATION_LENGTH]

    def following(self, found: ViewManifest | None) -> ViewManifest:
        """This manifest, to replace the one that was found, which other code has written."""
        return self if found is None else msgspec.structs.replace(self, version=found.version)

    def before(self, position: int) -> Version | None:
        """The newest version at or below the position."""
        found = [version for version in self.versions if version.position <= position]
        return found[-1] if found else None


class Place(Protocol):
    """Where a view is kept."""

    def refreshing(self) -> AbstractContextManager[None]:
        """Hold the lock on the view, if the place has one: one refresh at a time."""

    def manifest(self) -> ViewManifest | None:
        """The manifest, or None if there is no view yet."""

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame | None:
        """A row for each key, with all saved columns; None if the place keeps only states."""

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        """The rows to continue from, in the columns of the schema; a key may also have older ones."""

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        """Save the changed rows and the position, both or neither; returns the number of rows.

        The manifest describes the view that the rows change; it has no versions if the view is new. If the rows
        have the column `before`, the place also records the changes. Where there is no lock, `ManifestChanged` is
        raised if another process has replaced the manifest that this one follows on.
        """
