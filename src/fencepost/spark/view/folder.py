"""A view in a folder or an object store: layers of Parquet files, and a manifest that says which of them make up a
version.

    <folder>/view.json              the projection, and every version: its position, its layers
    <folder>/layers/<name>/         Parquet files: the keys that one refresh changed, or all keys
    <folder>/changes/<generation>/<position>/    Parquet files: the recorded changes of the refresh to that position

A refresh adds a layer; for each key, the newest layer that has it counts. A layer is complete and durable before the
manifest lists it, and the manifest is replaced in one step. So a killed refresh leaves the old versions, and at worst
files that a later refresh removes (slow/test_view_kills.py and slow/test_object_view_kills.py in tests/spark). In an
object store no lock keeps refreshes apart: docs/decisions/084-views-in-object-stores.md says why none removes what
another needs.

A layer that was written by a refresh which records changes also has the row before the refresh. The layer stays as long
as its version, also if the version is read from a merged layer. Recorded changes appear in `changes` after the manifest
lists their version, each refresh in one step; a refresh first publishes what a killed one has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ...address import object_url
from ...errors import FencepostError, InvalidInput
from ...storage import (
    Contents,
    Folder,
    ManifestChanged,
    Storage,
    busy,
    commit_manifest,
    storage_at,
    stored_manifest,
)
from ..basics import local_path, locked
from ..folding import BEFORE, POSITION, Plan
from ..frames import PATTERNS
from .changes import combined, compared
from .layers import LAYERS, Layers, LocalLayers
from .object_layers import ObjectLayers
from .place import FORMAT, Layer, Version, ViewManifest

VIEW: Final = Contents(
    "view",
    "view.json",
    argument="at",
    writing="refreshing this view",
    repair="delete view.json there and refresh the view, which folds it again",
)
LOCK: Final = "refresh.lock"
MOST_LAYERS: Final = 8  # more are merged into one
LAYER: Final = "number of the layer"  # with spaces, which no field's name has


@dataclass(frozen=True)
class FolderPlace:
    """Layers of Parquet files. Every version that is kept can be read."""

    storage: Storage
    layers: Layers
    plan: Plan
    keep: int

    @classmethod
    def of(cls, storage: Storage, plan: Plan, keep: int) -> FolderPlace:
        layers = LocalLayers(storage.folder) if isinstance(storage, Folder) else ObjectLayers(storage)
        return cls(storage, layers, plan, keep)

    def refreshing(self) -> AbstractContextManager[None]:
        """Hold the lock of a folder: two refreshes at once would each remove the other's version."""
        return locked(self.storage, LOCK, folder=LAYERS)

    def manifest(self) -> ViewManifest | None:
        return stored_manifest(self.storage, ViewManifest, newest_format=FORMAT)

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        """The rows of all layers; of the rows of a key, the one in the newest layer."""
        read = self.layers.reader(spark, version.layers)
        if len(version.layers) <= 1:
            return read(schema, version.layers)
        frames = [read(schema, [layer]).withColumn(LAYER, F.lit(number)) for number, layer in enumerate(version.layers)]
        whole = reduce(DataFrame.unionByName, frames)
        newest = F.max_by(F.struct(*schema.names), LAYER).alias("newest")
        return whole.groupBy(*self.plan.keys).agg(newest).select("newest.*")

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        return self.layers.reader(spark, version.layers)(schema, version.layers)

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        manifest = self._begun(manifest)
        there = self.manifest()
        listed = self._parts(there.versions if there is not None else ())
        left = self.layers.there() - listed  # what killed refreshes have left
        if self.storage.is_locked:
            self.layers.remove(left)
        with self._noticing_others(manifest):
            layer = self.layers.write(changes, position)
            written = self.layers.parts(layer)
            before = manifest.versions[-1].layers if manifest.versions else ()
            version = Version(
                position=position,
                digest=digest,
                layers=(*before, layer) if layer.rows else before,
                changes=layer if BEFORE in changes.columns else None,
            )
            if _is_ragged(version.layers):
                kept_columns = StructType([field for field in changes.schema.fields if field.name != BEFORE])
                merged = self.layers.write(self.saved(changes.sparkSession, kept_columns, version), position)
                written |= self.layers.parts(merged)
                version = msgspec.structs.replace(version, layers=(merged,))
        kept = (*manifest.versions, version)[-self.keep :]
        commit_manifest(self.storage, msgspec.structs.replace(manifest, versions=kept))
        # In an object store, only now: `left` may belong to live refreshes, which from here on cannot commit it.
        self.layers.remove((listed | written | left) - self._parts(kept))
        return layer.rows

    def recorded(self, spark: SparkSession, schema: StructType, versions: Sequence[Version]) -> list[DataFrame] | None:
        """The recorded rows of each of these refreshes; None if one of them did not record its changes."""
        wanted = self.plan.recorded_schema(schema[POSITION].dataType)
        found = [version.changes for version in versions if version.changes is not None]
        if len(found) < len(versions):
            return None
        read = self.layers.reader(spark, found)
        return [read(wanted, [layer]) for layer in found]

    def publish(self, spark: SparkSession, schema: StructType, manifest: ViewManifest) -> None:
        """Make the changes that committed refreshes recorded readable as a stream."""
        with self._noticing_others(manifest):
            there = max(self.layers.published(manifest.generation), default=None)
            if there is None:
                # The version that is published whole: the last one without recorded changes, or the oldest.
                unrecorded = (version for version in reversed(manifest.versions) if version.changes is None)
                first = next(unrecorded, manifest.versions[0])
                whole = compared(self.plan, None, self.saved(spark, schema, first), first.position)
                self.layers.publish(whole, manifest.generation, first.position)
                there = first.position
            for version in manifest.versions:
                rows = self.recorded(spark, schema, [version]) if version.position > there else None
                if rows is not None:
                    changes = combined(self.plan, rows, version.position)
                    self.layers.publish(changes, manifest.generation, version.position)

    def _begun(self, manifest: ViewManifest) -> ViewManifest:
        """The manifest that the new version is added to.

        In an object store, a new view gets a manifest without versions before its first layer. So a store that ignores
        conditions is refused before anything is written, and of two first refreshes one notices the other.
        """
        if self.storage.is_locked or manifest.version is not msgspec.UNSET:
            return manifest
        return commit_manifest(self.storage, manifest)

    @contextmanager
    def _noticing_others(self, manifest: ViewManifest) -> Iterator[None]:
        """If something fails after another refresh has committed, report that one: it may have removed the layers."""
        try:
            yield
        except Exception as error:
            found = None
            if not self.storage.is_locked:
                with suppress(FencepostError):  # the first error says more
                    found = self.manifest()
            if found is not None and found.version != manifest.version:
                raise ManifestChanged(busy(self.storage)) from error
            raise

    def _parts(self, versions: Sequence[Version]) -> set[str]:
        """What the layers of these versions consist of."""
        layers = [layer for version in versions for layer in version.layers]
        layers += [version.changes for version in versions if version.changes is not None]
        return set().union(*(self.layers.parts(layer) for layer in layers))


def _is_ragged(layers: Sequence[Layer]) -> bool:
    """Whether one merged layer is faster to read: there are many layers, or many rows in the later ones."""
    return len(layers) > MOST_LAYERS or sum(layer.rows for layer in layers) > 2 * (layers[0].rows if layers else 0)


def view_storage(place: str) -> Storage:
    """The storage in a folder, or below the prefix that a URL of an object store names.

    A folder whose name Spark can write to and then cannot read is refused.
    """
    if object_url(place, VIEW.argument) is not None:
        return storage_at(place, VIEW)
    folder = Path(local_path(place, VIEW.argument)).absolute()
    found = sorted(set(PATTERNS) & set(str(folder)))
    if found:
        raise InvalidInput(
            "at", f"{folder} contains {' and '.join(found)}, which Spark treats as a pattern: rename the folder"
        )
    return storage_at(folder, VIEW)


def read_view_manifest(place: Path | str) -> ViewManifest | None:
    """The manifest of the view in a folder, or below a prefix of an object store."""
    return stored_manifest(storage_at(place, VIEW), ViewManifest, newest_format=FORMAT)
