"""A view in a folder: layers of Parquet files, and a manifest that says which of them make up a version.

    <folder>/view.json              the projection, and every version: its position, its layers
    <folder>/layers/<name>/         Parquet files: the keys that one refresh changed, or all keys
    <folder>/changes/<generation>/<position>/    Parquet files: the recorded changes of the refresh to that position

A refresh adds a layer; for each key, the newest layer that has it counts. A layer is complete and durable before the
manifest names it, and the manifest is replaced in one step. So a killed refresh leaves the old versions, and at worst
a layer that the next refresh removes. tests/spark/slow/test_view_kills.py kills refreshes.

A layer that was written by a refresh which records changes also has the row before the refresh. The layer stays as long
as its version, also if the version is read from a merged layer. Recorded changes appear in `changes` after the manifest
names their version, each refresh in one step; a refresh first publishes what a killed one has not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ...durable import sync
from ...errors import InvalidInput
from ...manifests import read_manifest, write_manifest
from ..basics import locked
from ..folding import BEFORE, POSITION, STATE, Plan
from .changes import combined, compared
from .place import FORMAT, Layer, Version, ViewManifest

MANIFEST: Final = "view.json"
LAYERS: Final = "layers"
CHANGES: Final = "changes"
LOCK: Final = "refresh.lock"
PATTERNS: Final = "*?[{\\"  # Spark treats a path with one of these as a pattern when it reads
MOST_LAYERS: Final = 8  # more are merged into one
LAYER: Final = "number of the layer"  # with spaces, which no field's name has


@dataclass(frozen=True)
class FolderPlace:
    """Layers of Parquet files. Every version that is kept can be read."""

    folder: Path
    plan: Plan
    keep: int

    def refreshing(self) -> AbstractContextManager[None]:
        return refreshing(self.folder)

    def manifest(self) -> ViewManifest | None:
        return read_view_manifest(self.folder)

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        whole = self._layers(spark, schema, version)
        if len(version.layers) <= 1:
            return whole.select(*schema.names)
        newest = F.max_by(F.struct(*schema.names), LAYER).alias("newest")
        return whole.groupBy(*self.plan.keys).agg(newest).select("newest.*")

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        wanted = StructType([field for field in schema.fields if field.name in (*self.plan.keys, POSITION, STATE)])
        places = [layer_place(self.folder, layer.name) for layer in version.layers]
        return spark.read.schema(wanted).parquet(*places) if places else spark.createDataFrame([], wanted)

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        there = self.manifest()
        sweep(self.folder, there.versions if there is not None else ())  # layers that a killed refresh has left
        layer = self._write(changes, position)
        recording = BEFORE in changes.columns
        before = manifest.versions[-1].layers if manifest.versions else ()
        version = Version(
            position=position,
            digest=digest,
            layers=(*before, layer) if layer.rows else before,
            changes=layer if recording else None,
        )
        if _is_ragged(version.layers):
            kept_columns = StructType([field for field in changes.schema.fields if field.name != BEFORE])
            merged = self._write(self.saved(changes.sparkSession, kept_columns, version), position)
            version = msgspec.structs.replace(version, layers=(merged,))
        kept = (*manifest.versions, version)[-self.keep :]
        write_manifest(self.folder / MANIFEST, msgspec.structs.replace(manifest, versions=kept))
        sweep(self.folder, kept)
        return layer.rows

    def recorded(self, spark: SparkSession, schema: StructType, versions: Sequence[Version]) -> list[DataFrame] | None:
        wanted = self.plan.recorded_schema(schema[POSITION].dataType)
        found = [layer_place(self.folder, each.changes.name) for each in versions if each.changes is not None]
        return [spark.read.schema(wanted).parquet(place) for place in found] if len(found) == len(versions) else None

    def publish(self, spark: SparkSession, schema: StructType, manifest: ViewManifest) -> None:
        target = self.folder / CHANGES / manifest.generation
        target.mkdir(parents=True, exist_ok=True)
        there = max((int(place.name) for place in target.iterdir()), default=None)
        if there is None:
            first = _first_to_publish(manifest.versions)
            whole = self.saved(spark, schema, first)
            self._publish(compared(self.plan, None, whole, first.position), target, first.position)
            there = first.position
        for version in manifest.versions:
            rows = self.recorded(spark, schema, [version])
            if version.position > there and rows is not None:
                self._publish(combined(self.plan, rows, version.position), target, version.position)

    def _publish(self, changes: DataFrame, target: Path, position: int) -> None:
        """Write among the layers, where the next refresh removes what a killed one has left; then move the files."""
        draft = self._write(changes, position)
        os.rename(self.folder / LAYERS / draft.name, target / f"{position:020d}")
        sync(target)

    def _write(self, frame: DataFrame, position: int) -> Layer:
        name = f"{position:020d}-{uuid4().hex[:8]}"
        frame.write.option("compression", "zstd").parquet(layer_place(self.folder, name))
        return settled(self.folder, name)

    def _layers(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        frames = [
            spark.read.schema(schema).parquet(layer_place(self.folder, layer.name)).withColumn(LAYER, F.lit(number))
            for number, layer in enumerate(version.layers)
        ]
        nothing = spark.createDataFrame([], schema).withColumn(LAYER, F.lit(0))
        return reduce(DataFrame.unionByName, frames) if frames else nothing


def _first_to_publish(versions: Sequence[Version]) -> Version:
    """The version that is published whole: the last one without recorded changes, or the oldest."""
    return next((version for version in reversed(versions) if version.changes is None), versions[0])


def _is_ragged(layers: Sequence[Layer]) -> bool:
    """Whether one merged layer is faster to read: there are many layers, or many rows in the later ones."""
    return len(layers) > MOST_LAYERS or sum(layer.rows for layer in layers) > 2 * (layers[0].rows if layers else 0)


def check_folder(folder: Path) -> None:
    """Refuse a name that Spark can write to and then cannot read."""
    found = sorted(set(PATTERNS) & set(str(folder)))
    if found:
        raise InvalidInput(
            "at", f"{folder} contains {' and '.join(found)}, which Spark treats as a pattern: rename the folder"
        )


def read_view_manifest(folder: Path) -> ViewManifest | None:
    return read_manifest(folder / MANIFEST, ViewManifest, name="view", newest_format=FORMAT)


@contextmanager
def refreshing(folder: Path) -> Iterator[None]:
    """Hold the lock on the view: two refreshes at once would each remove the other's version."""
    (folder / LAYERS).mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"{folder}: another process is refreshing this view; try again later"):
        yield


def settled(folder: Path, name: str) -> Layer:
    """Sync the files that Spark has written, and count their rows."""
    rows = 0
    place = folder / LAYERS / name
    for path in sorted(place.glob("*.parquet")):
        sync(path)
        rows += pq.read_metadata(path).num_rows
    sync(place)
    sync(folder / LAYERS)
    return Layer(name=name, rows=rows)


def layer_place(folder: Path, name: str) -> str:
    """The layer's path as Spark takes it, without percent-encoding."""
    return f"file:{folder / LAYERS / name}"


def sweep(folder: Path, kept: Sequence[Version]) -> None:
    """Remove the layers that no kept version has: those of old versions and of killed refreshes."""
    names = {layer.name for version in kept for layer in version.layers}
    names |= {version.changes.name for version in kept if version.changes is not None}
    for place in (folder / LAYERS).iterdir():
        if place.name not in names:
            shutil.rmtree(place, ignore_errors=True)
