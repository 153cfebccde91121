"""Layers in an object store: tasks write and read their Parquet files through the storage.

Spark without a connector for the object store can do neither. A task writes one file, under a random name, and returns
its entry. The driver lists the entries of the tasks that succeeded, so a file of a failed or repeated task belongs to
no layer. Spark's own reader reads the files if this session can open one of them; otherwise tasks in Python do, which
check every page and name a damaged or missing file.

An object store cannot move a folder. So the published changes of one refresh are one object, written by one task and
never replaced: a reader sees all of them or none, also if two processes publish them at once.
tests/spark/test_object_views.py holds this, on a mock of S3.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...errors import StoreCorrupt
from ...storage import LEFT_S, Storage
from ...storage.parquet import checked_batches
from ..basics import LINES, entries_in, line_of, over_tasks, reporting
from ..frames import READING, native_folder
from .layers import CHANGES, LAYERS, Reader
from .place import Layer, LayerFile

PUBLISHED: Final = "changes.parquet"
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 67_108_864  # a worker holds one row group in memory
# As Spark's own reader packs files into tasks: opening one costs as much as reading 4 MB.
TASK_BYTES: Final = 134_217_728
OPENING_BYTES: Final = 4_194_304


@dataclass(frozen=True)
class ObjectLayers:
    """Layers in an object store. Several refreshes may write layers at once; one of them replaces the manifest."""

    storage: Storage

    def write(self, frame: DataFrame, position: int) -> Layer:
        name = f"{position:020d}{self.storage.suffix()}"
        writer = FileWriter(self.storage, _arrow(frame.schema), f"{LAYERS}/{name}")
        written = entries_in(frame.mapInArrow(writer, LINES), LayerFile)
        files = sorted(written, key=lambda file: file.path)
        return Layer(name=name, rows=sum(file.rows for file in files), files=tuple(files))

    def reader(self, spark: SparkSession, layers: Sequence[Layer]) -> Reader:
        sample = next((file for layer in reversed(layers) for file in self._files(layer)), None)
        folder = None if sample is None else native_folder(spark, self.storage.name(), sample.path, sample.bytes)

        def read(schema: StructType, layers: Sequence[Layer]) -> DataFrame:
            files = [file for layer in layers for file in self._files(layer)]
            if folder is not None and files:
                paths = [f"{folder}/{file.path}" for file in files]
                return spark.read.schema(schema).options(**READING).parquet(*paths)
            return over_tasks(spark, packed(files), partial(_rows, self.storage, _arrow(schema)), schema)

        return read

    def parts(self, layer: Layer) -> set[str]:
        return {file.path.removeprefix(f"{LAYERS}/") for file in self._files(layer)}

    def there(self) -> set[str]:
        return set(self.storage.listed(LAYERS, before_s=time.time() - LEFT_S))

    def remove(self, parts: Iterable[str]) -> None:
        for name in parts:
            self.storage.delete(f"{LAYERS}/{name}")

    def published(self, generation: str) -> list[int]:
        return [int(path.partition("/")[0]) for path in self.storage.listed(f"{CHANGES}/{generation}")]

    def publish(self, changes: DataFrame, generation: str, position: int) -> None:
        folder = f"{CHANGES}/{generation}/{position:020d}"
        writer = FileWriter(self.storage, _arrow(changes.schema), folder, PUBLISHED)
        written = changes.repartition(1).mapInArrow(writer, LINES).collect()
        if not written:  # there are no changes, so perhaps no task; the file says that they were published
            writer.write(iter(()))

    def _files(self, layer: Layer) -> tuple[LayerFile, ...]:
        if layer.files is msgspec.UNSET:
            raise StoreCorrupt(
                f"{self.storage.name(self.storage.contents.manifest)}: layer {layer.name} lists no files, because the "
                f"view was copied from a folder; {self.storage.contents.repair}"
            )
        return layer.files


def packed(files: Sequence[LayerFile]) -> list[tuple[LayerFile, ...]]:
    """The files for each task: several small ones, or a large one."""
    groups: list[list[LayerFile]] = []
    held = TASK_BYTES
    for file in files:
        cost = file.bytes + OPENING_BYTES
        if held + cost > TASK_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += cost
    return [tuple(group) for group in groups]


def _rows(storage: Storage, schema: pa.Schema, files: Sequence[LayerFile]) -> Iterator[pa.RecordBatch]:
    """The rows of the files; in a worker."""
    for file in files:
        rows = 0
        for batch in checked_batches(storage, file.path, schema.names):
            rows += batch.num_rows
            yield from _conformed(batch.select(schema.names), schema)
        if rows != file.rows:
            problem = f"{rows} rows, and the view's manifest says {file.rows}"
            raise StoreCorrupt(f"{storage.name(file.path)}: {problem}; {storage.contents.repair}")


@dataclass(frozen=True)
class FileWriter:
    """Writes its rows to one file and returns the file's entry; no rows make no file. In a worker."""

    storage: Storage
    schema: pa.Schema
    folder: str
    name: str | None = None  # None: a random name. A file with a given name is never replaced

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            filled = (batch for batch in batches if batch.num_rows)
            first = next(filled, None)
            if first is not None:
                yield line_of(self.write(chain([first], filled)))

    def write(self, batches: Iterator[pa.RecordBatch]) -> LayerFile:
        path = f"{self.folder}/{self.name or f'{token_hex(16)}.parquet'}"
        rows = size = 0
        try:
            with self.storage.new_file(path, replace=self.name is None) as draft:
                with pq.ParquetWriter(draft, self.schema, compression="zstd", write_page_checksum=True) as writer:
                    for table in self._groups(batches):
                        writer.write_table(table, row_group_size=GROUP_ROWS)
                        rows += table.num_rows
                size = draft.stat().st_size
        except FileExistsError:
            pass  # another try of this task, or another process, has published the same rows
        return LayerFile(path=path, rows=rows, bytes=size)

    def _groups(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows in tables of about GROUP_ROWS or GROUP_BYTES. Each read of a small row group would be a request."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for given in batches:
            for batch in _conformed(given, self.schema):
                held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                yield pa.Table.from_batches(held, self.schema)
                held, rows, size = [], 0, 0
        if held:
            yield pa.Table.from_batches(held, self.schema)


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows with exactly these types: a session may have another time zone or wider types of text."""
    return [batch] if batch.schema == schema else pa.Table.from_batches([batch]).cast(schema).to_batches()
