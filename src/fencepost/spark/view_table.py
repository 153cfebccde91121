"""The Delta table of a view: a row for each key, readable by engines that know nothing of views.

    <folder>/_delta_log/                            the table's versions, by Delta
    <folder>/rows/<buckets>-<bucket>-<random>.parquet   the rows of the keys in a bucket

The rows are spread over buckets by a hash of the key, each bucket in one file. A refresh rewrites only the buckets
that have a changed key, in the worker that has the changed rows, and replaces their files in one commit, which carries
the position. That needs no MERGE. A
killed refresh has not happened, and a repeated one is recognised. There are more buckets where there are more keys,
so that a small change to a large view rewrites a small part of it.

Invariant: the files of a version hold exactly one row for each key of the view at the version's position.
tests/spark/test_view.py compares it with the fold, and reads the table with deltalake alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

from ..engine import POSTGRES
from ..errors import InvalidInput
from .basics import LINES, entries_in, line_of, over_tasks, reporting
from .delta import LOOKED_BACK, Change, DataFile, FileTable, State, TableChanged, Version
from .folding import VALID_TO, Plan
from .frames import PATTERNS, READING, native_folder
from .location import absolute_location

ROWS: Final = "rows"  # the folder of the files
TABLE: Final = "view"
PROJECTION: Final = "fencepost.projection"
GENERATION: Final = "fencepost.generation"  # of the code and the columns; another one folds everything again
REPAIR: Final = "delete the folder of the view and refresh the view, which folds it again"
FEWEST_BUCKETS: Final = 16
BUCKET_KEYS: Final = 20_000  # at least, if there are more buckets than the fewest
MOST_BUCKETS: Final = 1_024
GROUP_ROWS: Final = 65_536
BUCKET: Final = "number of the bucket"  # with spaces, which no field's name has
_NAME: Final = re.compile(rf"{ROWS}/(\d{{4}})-(\d{{4}})-[0-9a-f]{{32}}\.parquet")
_OURS: Final = re.compile(rf"{_NAME.pattern}|{ROWS}/\.draft-\w+/draft\.parquet")


@dataclass(frozen=True)
class ViewTable:
    """The table of one view. Its versions are its newest commits of one generation."""

    table: FileTable
    plan: Plan
    schema: StructType
    projection: str
    generation: str
    keep: int

    def versions(self) -> list[Version]:
        """The versions that are kept, oldest first; empty if there are none of this generation."""
        state = self.table.state()
        return [] if state is None else self._kept(state)

    def _kept(self, state: State) -> list[Version]:
        found = [version for version in state.versions(self.keep + LOOKED_BACK) if GENERATION in version.properties]
        if found and found[0].properties[PROJECTION] != self.projection:
            other = found[0].properties[PROJECTION]
            raise InvalidInput("at", f"the view kept there is of {other}, not of {self.projection}")
        kept = list[Version]()
        for version in found[: self.keep]:
            if version.properties[GENERATION] != self.generation:
                break
            kept.append(version)
        return kept[::-1]

    def files(self, version: Version) -> dict[str, DataFile]:
        state = self.table.state(version.number)
        assert state is not None
        return state.files

    def read(self, spark: SparkSession, schema: StructType, files: Mapping[str, DataFile]) -> DataFrame:
        """The rows of the files, in the columns of the schema."""
        if not files:
            return spark.createDataFrame([], schema)
        paths = sorted(files)
        native = native_folder(spark, self.table.location, paths[-1], files[paths[-1]].bytes)
        if native is not None:
            return spark.read.schema(schema).options(**READING).parquet(*(f"{native}/{path}" for path in paths))
        return over_tasks(spark, paths, partial(_rows, self.table, to_arrow_schema(schema, timezone="UTC")), schema)

    def save(self, changes: DataFrame, base: Version | None, position: int, digest: str) -> int:
        """Write the changed buckets and commit them, both or neither; returns the number of changed keys.

        `base` is the version that the changes were folded on, None to replace whatever there is. `TableChanged` is
        raised if another process has committed since.
        """
        state = self._state()
        newest = self._kept(state)[-1:]
        if newest != ([] if base is None else [base]):
            raise self._overtaken()
        with self._noticing_others(state):
            added, replaced, changed = self._write(changes, {} if base is None else state.files)
        properties = {PROJECTION: self.projection, GENERATION: self.generation}
        columns = self.schema_arrow if base is None else None
        change = Change(added, replaced, position, digest, properties, schema=columns)
        state = self.table.commit(state, change)
        kept = [version.number for version in self._kept(state)]
        unused = self.table.unused(state, retain_hours=0, keep=kept)
        self.table.delete([path for path in unused if _OURS.fullmatch(path)])
        return changed

    def _state(self) -> State:
        """The table, which is created if there is none."""
        found = self.table.state()
        if found is not None:
            return found
        return self.table.create(self.schema_arrow, TABLE, {})

    def _write(self, changes: DataFrame, files: Mapping[str, DataFile]) -> tuple[list[BucketFile], set[str], int]:
        """Write the buckets that have a changed key; returns new files, those that they replace, and changed keys."""
        current = max((_bucket_of(path)[0] for path in files), default=0)
        wanted = buckets_for(sum(file.rows for file in files.values()))
        if current and wanted < 4 * current:
            written = self._written(
                changes, BucketWriter(self.table, self.schema_arrow, self.plan.row_keys, current, tuple(files))
            )
            return written, {each.replaced for each in written if each.replaced}, sum(each.changed for each in written)
        # Everything is written: the view is new, or has grown so much that it needs more buckets.
        changed = changes.persist()
        try:
            count = changed.count()
            keys = changed.where(F.col(VALID_TO).isNull()).count() if self.plan.history else count
            rows = changed
            if files:
                old = self.read(changes.sparkSession, changes.schema, files)
                rows = changed.unionByName(old.join(changed, list(self.plan.row_keys), "left_anti"))
            buckets = wanted if files else buckets_for(count)
            return self._written(rows, BucketWriter(self.table, self.schema_arrow, (), buckets)), set(files), keys
        finally:
            changed.unpersist()

    def _written(self, rows: DataFrame, writer: BucketWriter) -> list[BucketFile]:
        """Write the rows of each bucket to a file; in the workers."""
        spread = rows.withColumn(BUCKET, self._bucket(writer.buckets)).repartition(BUCKET)
        return entries_in(
            spread.sortWithinPartitions(BUCKET, *self.plan.row_keys).mapInArrow(writer, LINES), BucketFile
        )

    @property
    def schema_arrow(self) -> pa.Schema:
        return to_arrow_schema(self.schema, timezone="UTC")

    def _bucket(self, buckets: int) -> Column:
        return F.pmod(F.xxhash64(*self.plan.keys), F.lit(buckets)).cast(LongType())

    @contextmanager
    def _noticing_others(self, state: State) -> Iterator[None]:
        """If something fails after another refresh has committed, report that one: it may have removed files."""
        try:
            yield
        except Exception as error:
            found = self.table.state()
            if found is not None and found.number != state.number:
                raise self._overtaken() from error
            raise

    def _overtaken(self) -> TableChanged:
        return TableChanged(f"{self.table.location}: another process has refreshed this view; try again")


class BucketFile(DataFile, frozen=True, kw_only=True):
    """A file that a task has written, the one that it replaces, and how many of its keys have changed."""

    replaced: str | None = None
    changed: int = 0


@dataclass(frozen=True)
class BucketWriter:
    """Writes a file for each bucket among the rows, which are sorted by bucket; in a worker.

    The rows of other keys in the bucket are taken from the file that it replaces, without becoming rows of Spark.
    """

    table: FileTable
    schema: pa.Schema
    keys: tuple[str, ...]
    buckets: int
    files: tuple[str, ...] = ()  # of the version before

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            old = {_bucket_of(path)[1]: path for path in self.files}
            for bucket, parts in groupby(_by_bucket(batches), key=lambda part: part[0]):
                rows = [batch for _, part in parts for batch in _conformed(part, self.schema)]
                yield line_of(self._written(bucket, pa.Table.from_batches(rows, self.schema), old.get(bucket)))

    def _written(self, bucket: int, changed: pa.Table, replaced: str | None) -> BucketFile:
        rows = changed if replaced is None else pa.concat_tables([changed, self._others(replaced, changed)])
        path = f"{ROWS}/{self.buckets:04d}-{bucket:04d}-{uuid4().hex}.parquet"
        with self.table.draft(ROWS) as draft:
            pq.write_table(rows, draft, compression="zstd", write_page_checksum=True, row_group_size=GROUP_ROWS)
            size = draft.stat().st_size
            self.table.put(draft, path)
        # In a history, each changed key has one row that has not ended.
        keys = changed.column(VALID_TO).null_count if VALID_TO in self.schema.names else changed.num_rows
        return BucketFile(path=path, rows=rows.num_rows, bytes=size, replaced=replaced, changed=keys)

    def _others(self, replaced: str, changed: pa.Table) -> pa.Table:
        """The rows of the replaced file whose keys have not changed."""
        old = pa.Table.from_batches(_rows(self.table, self.schema, replaced), self.schema)
        numbered = old.select(self.keys).append_column(BUCKET, pa.array(range(old.num_rows), pa.int64()))
        kept = numbered.join(changed.select(self.keys), list(self.keys), join_type="left anti").column(BUCKET)
        return old.take(kept.sort())


def buckets_for(keys: int) -> int:
    """How many buckets a view of that many keys has: a power of two.

    >>> buckets_for(100), buckets_for(1_000_000), buckets_for(10**9)
    (16, 64, 1024)
    """
    return max(FEWEST_BUCKETS, min(MOST_BUCKETS, 1 << (keys // BUCKET_KEYS).bit_length()))


def table_at(at: str) -> FileTable:
    """The table in a folder, or below the prefix that a URL names.

    A folder whose name Spark can write to and then cannot read is refused.
    """
    if not isinstance(at, str) or not at:
        raise InvalidInput("at", f"a folder or a URL such as s3://bucket/prefix is needed, not {at!r:.80}")
    if at.partition(":")[0] in POSTGRES.schemes:
        raise InvalidInput(
            "at",
            "a view is a Delta table, in a folder or an object store; a table in PostgreSQL is a ReadModel, which "
            "fencepost.spark.rebuild fills",
        )
    location = absolute_location(at, "at")
    found = sorted(set(PATTERNS) & set(location))
    if found:
        raise InvalidInput(
            "at", f"{location} contains {' and '.join(found)}, which Spark treats as a pattern: rename the folder"
        )
    return FileTable(location, "at", REPAIR)


def _bucket_of(path: str) -> tuple[int, int]:
    """How many buckets there are, and which one the file holds."""
    found = _NAME.fullmatch(path)
    if found is None:
        raise InvalidInput("at", f"the table has a file {path!r:.120}, which no refresh of a view has written")
    return int(found[1]), int(found[2])


def _rows(table: FileTable, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file; in a worker."""
    for batch in table.batches(path, schema.names):
        yield from _conformed(batch.select(schema.names), schema)


def _by_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each batch by bucket, without the column of the bucket."""
    for batch in batches:
        numbers: Sequence[int] = batch.column(BUCKET).to_pylist()
        rows = batch.drop_columns([BUCKET])
        start = 0
        for number, same in groupby(numbers):
            count = sum(1 for _ in same)
            yield number, rows.slice(start, count)
            start += count


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows with exactly these types: a session may have another time zone or wider types of text."""
    return [batch] if batch.schema == schema else pa.Table.from_batches([batch]).cast(schema).to_batches()
