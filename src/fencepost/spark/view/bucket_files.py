"""The Parquet files of a view in a Delta or Iceberg table: written and, in an object store, read in the workers.

A file holds the rows of one bucket and has a random name, so no two tasks write the same file. Spark's own reader reads
the files if the session can open them. Otherwise Python workers do, with the credentials of their environment.
tests/spark/slow/test_object_tables.py reads both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ...storage import Storage
from ..basics import line_of, over_tasks, reporting
from ..formats import DataFile
from ..frames import native_folder

BUCKET: Final = "number of the bucket"  # with spaces, which no field's name has


def write_buckets(storage: Storage, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a file for each bucket among the rows, which are sorted by bucket; in a worker."""
    with reporting():
        for bucket, parts in groupby(_parts(batches), key=lambda part: part[0]):
            name = f"bucket-{bucket:03d}-{uuid4().hex}.parquet"
            rows = 0
            with storage.new_file(path_in(folder, name)) as draft:
                writer = None
                for _, part in parts:
                    writer = writer or pq.ParquetWriter(draft, part.schema, compression="zstd")
                    writer.write_batch(part)
                    rows += part.num_rows
                assert writer is not None
                writer.close()
                size = draft.stat().st_size
            yield line_of(DataFile(name, rows, size))


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
    if not sizes:
        return spark.createDataFrame([], schema)
    paths = {path_in(folder, name): size for name, size in sorted(sizes.items())}
    native = native_folder(spark, storage.name(), *list(paths.items())[-1])
    if native is not None:
        return spark.read.schema(schema).parquet(*(f"{native}/{path}" for path in paths))
    return over_tasks(spark, list(paths), partial(_rows, storage, schema.names), schema)


def _rows(storage: Storage, columns: list[str], path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file; in a worker."""
    with storage.source(path) as source, pq.ParquetFile(source) as file:
        for batch in file.iter_batches(columns=columns):
            yield batch.select(columns)


def path_in(folder: str, name: str) -> str:
    """The path of a file, relative to the storage, whose files may be in no folder."""
    return f"{folder}/{name}" if folder else name
