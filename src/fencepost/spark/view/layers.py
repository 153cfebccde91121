"""What a view asks of its layers, and layers in a folder, which Spark's own writer and reader handle.

A layer is a set of Parquet files. `Layers` has two implementations: `LocalLayers` here, and `ObjectLayers`
(`object_layers`). A layer is complete and durable when `write` returns it; the manifest lists it afterwards. Nothing
else is read, so what a killed refresh or a failed task has left is never part of a view.
tests/spark/test_view.py and tests/spark/test_object_views.py compare both with the fold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from uuid import uuid4

import pyarrow.parquet as pq
from msgspec import UNSET
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ...durable import sync
from .place import Layer

LAYERS: Final = "layers"
CHANGES: Final = "changes"


Reader: TypeAlias = Callable[[StructType, Sequence[Layer]], DataFrame]
"""The rows of several layers, with the columns of the schema."""


class Layers(Protocol):
    """The layers of one view, and the changes that it publishes."""

    def write(self, frame: DataFrame, position: int) -> Layer:
        """Write the rows as a new layer of the version at the position."""

    def reader(self, spark: SparkSession, layers: Sequence[Layer]) -> Reader:
        """Find out once how this session reads these layers; the result reads some of them."""

    def parts(self, layer: Layer) -> set[str]:
        """What belongs to the layer, by the names that `there` gives it."""

    def there(self) -> set[str]:
        """What there is of any layer. Without a lock, only what was written so long ago that its refresh has ended."""

    def remove(self, parts: Iterable[str]) -> None:
        """Remove these parts of layers. Missing ones are ignored."""

    def published(self, generation: str) -> list[int]:
        """The positions whose changes have been published."""

    def publish(self, changes: DataFrame, generation: str, position: int) -> None:
        """Let the changes of the refresh to the position appear for other programs, all at once."""


@dataclass(frozen=True)
class LocalLayers:
    """Layers in a folder, each a folder of its own. The caller holds the lock on the view."""

    folder: Path

    def write(self, frame: DataFrame, position: int) -> Layer:
        name = f"{position:020d}-{uuid4().hex[:8]}"
        frame.write.option("compression", "zstd").parquet(self._place(name))
        return settled(self.folder, name)

    def reader(self, spark: SparkSession, layers: Sequence[Layer]) -> Reader:
        def read(schema: StructType, layers: Sequence[Layer]) -> DataFrame:
            places = [place for layer in layers for place in self._places(layer)]
            return spark.read.schema(schema).parquet(*places) if places else spark.createDataFrame([], schema)

        return read

    def parts(self, layer: Layer) -> set[str]:
        return {layer.name}

    def there(self) -> set[str]:
        return {place.name for place in (self.folder / LAYERS).iterdir()}

    def remove(self, parts: Iterable[str]) -> None:
        for name in parts:
            shutil.rmtree(self.folder / LAYERS / name, ignore_errors=True)

    def published(self, generation: str) -> list[int]:
        target = self._published(generation)
        return [int(place.name) for place in target.iterdir()] if target.exists() else []

    def publish(self, changes: DataFrame, generation: str, position: int) -> None:
        """Write among the layers, where the next refresh removes what a killed one has left; then move the files."""
        target = self._published(generation)
        target.mkdir(parents=True, exist_ok=True)
        draft = self.write(changes, position)
        os.rename(self.folder / LAYERS / draft.name, target / f"{position:020d}")
        sync(target)

    def _published(self, generation: str) -> Path:
        return self.folder / CHANGES / generation

    def _places(self, layer: Layer) -> list[str]:
        if layer.files is UNSET:
            return [self._place(layer.name)]
        # The view was copied from an object store, where a layer's folder may also hold files of failed tasks.
        return [f"file:{self.folder / file.path}" for file in layer.files]

    def _place(self, name: str) -> str:
        """The layer's path as Spark takes it, without percent-encoding."""
        return f"file:{self.folder / LAYERS / name}"


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
