"""The Parquet files of a view in a Delta or Iceberg table: written and, in an object store, read in the workers.

A file holds the rows of one bucket and has a random name, so no two tasks write the same file. Spark's own reader reads
the files if the session can open them. Otherwise Python workers do, with the credentials of their environment.
tests/spark/slow/test_object_tables.py reads both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ...storage import Storage
from ..basics import native_folder, over_tasks, reporting

BUCKET: Final = "number of the bucket"  # with spaces, which no field's name has


@dataclass(frozen=True)
class BucketWriter:
    """Writes a file for each bucket among its rows, which are sorted by bucket; in a worker."""

    storage: Storage
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            for bucket, parts in groupby(_parts(batches), key=lambda part: part[0]):
                name = f"bucket-{bucket:03d}-{uuid4().hex}.parquet"
                rows = 0
                with self.storage.new_file(_path(self.folder, name)) as draft:
                    writer = None
                    for _, part in parts:
                        writer = writer or pq.ParquetWriter(draft, part.schema, compression="zstd")
                        writer.write_batch(part)
                        rows += part.num_rows
                    assert writer is not None
                    writer.close()
                    size = draft.stat().st_size
                yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows], "bytes": [size]})


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each batch by bucket, without the column of the bucket."""
    for batch in batches:
        numbers = batch.column(BUCKET)
        rows = batch.drop_columns([BUCKET])
        start = 0
        for number, same in groupby(numbers.to_pylist()):
            count = sum(1 for _ in same)
            yield number, rows.slice(start, count)
            start += count


def read_files(
    spark: SparkSession, storage: Storage, folder: str, schema: StructType, sizes: Mapping[str, int]
) -> DataFrame:
    """The rows of the named files, in the columns of the schema; `sizes` has the sizes of the files."""
    files = [_File(_path(folder, name), size) for name, size in sorted(sizes.items())]
    if not files:
        return spark.createDataFrame([], schema)
    if storage.is_locked:
        return spark.read.schema(schema).parquet(*(f"file:{storage.name(file.path)}" for file in files))
    native = native_folder(spark, storage.name(), files[-1])
    if native is not None:
        return spark.read.schema(schema).parquet(*(f"{native}/{file.path}" for file in files))
    return over_tasks(spark, [file.path for file in files], _FileReader(storage, tuple(schema.names)), schema)


@dataclass(frozen=True)
class _File:
    path: str  # relative to the storage
    bytes: int


@dataclass(frozen=True)
class _FileReader:
    """Reads a file of the storage; in a worker."""

    storage: Storage
    columns: tuple[str, ...]

    def __call__(self, path: str) -> Iterator[pa.RecordBatch]:
        with self.storage.source(path) as source, pq.ParquetFile(source) as file:
            for batch in file.iter_batches(columns=list(self.columns)):
                yield batch.select(list(self.columns))


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
