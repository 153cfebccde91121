"""A view in a Delta or an Iceberg table: a row for each key, readable by engines that know nothing of views.

The rows are spread over buckets by a hash of the key, each bucket in one file. A refresh rewrites only the buckets
that have a changed key, and replaces their files in one commit of the table format. That needs no MERGE, and the commit
carries the position, so a killed refresh has not happened and a repeated one is recognised. Commits are versions:
`View.at` reads the files of the commit at its position.

Invariant: the table's files at a commit hold exactly one row for each key of the view at the commit's position.
tests/spark/test_view_files.py compares it with the fold, and reads it with deltalake and pyiceberg alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

from ...durable import durable_file
from ...errors import InvalidInput
from ..basics import locked, reporting
from ..folding import POSITION, STATE, Plan
from ..formats import Commit, DataFile, FileTable, table_of
from .place import FORMAT, Version, ViewManifest

BUCKETS: Final = 16
BUCKET: Final = "number of the bucket"  # with spaces, which no field's name has
LOCK: Final = "refresh.lock"
TABLE: Final = "view"
PREFIX: Final = "fencepost."  # of the properties of a commit
FINGERPRINT: Final = f"{PREFIX}fingerprint"
COLUMNS: Final = f"{PREFIX}columns"
_WRITTEN: Final = "path string, rows long, bytes long"


@dataclass(frozen=True)
class FilesPlace:
    """A table of Parquet files. The versions are its newest commits."""

    kind: str  # delta or iceberg
    root: Path
    plan: Plan
    keep: int
    schema: StructType

    @cached_property
    def table(self) -> FileTable:
        return table_of(self.kind, self.root, schema=to_arrow_schema(self.schema, timezone="UTC"), name=TABLE)

    def refreshing(self) -> AbstractContextManager[None]:
        self.table.folder.mkdir(parents=True, exist_ok=True)
        return locked(self.root / LOCK, f"{self.root}: another process is refreshing this view; try again later")

    def manifest(self) -> ViewManifest | None:
        commits = self._kept()
        if not commits:
            return None
        of = commits[-1].properties
        if int(of[f"{PREFIX}format"]) > FORMAT:
            raise InvalidInput("at", f"{self.root}: the view is of a newer format; upgrade Fencepost")
        return ViewManifest(
            projection=of[f"{PREFIX}projection"],
            fingerprint=of[FINGERPRINT],
            columns=of[COLUMNS],
            versions=tuple(
                Version(position=commit.position, digest=commit.properties[f"{PREFIX}digest"], layers=())
                for commit in commits
            ),
        )

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame | None:
        return _read(spark, schema, self.table.paths(self._commit(version).version))

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        wanted = StructType([field for field in schema.fields if field.name in (*self.plan.keys, POSITION, STATE)])
        return _read(spark, wanted, self.table.paths(self._commit(version).version))

    def recorded(self, spark: SparkSession, schema: StructType, versions: Sequence[Version]) -> list[DataFrame] | None:
        return None

    def publish(self, spark: SparkSession, schema: StructType, manifest: ViewManifest) -> None:
        raise NotImplementedError("a view in a table does not record changes, which `View` checks")

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        self._check_columns(manifest)
        self._sweep()  # files that a killed refresh has left
        spark = changes.sparkSession
        there = self.table.paths()
        bucketed = changes.withColumn(BUCKET, self._bucket()).persist()
        try:
            touched = {row[0]: row[1] for row in bucketed.groupBy(BUCKET).count().collect()}
            replaced = {path for path in there if not manifest.versions or _bucket_of(path) in touched}
            rows = bucketed
            if replaced and manifest.versions:
                old = _read(spark, changes.schema, replaced).withColumn(BUCKET, self._bucket())
                rows = bucketed.unionByName(old.join(bucketed, list(self.plan.keys), "left_anti"))
            added = self._write(rows) if touched else []
        finally:
            bucketed.unpersist()
        self.table.commit(added, replaced, position=position, properties=_properties(manifest, digest))
        self._sweep()
        return sum(touched.values())

    def _write(self, rows: DataFrame) -> list[DataFile]:
        """Write the rows of each bucket to a file; in the workers."""
        spread = rows.repartition(BUCKET).sortWithinPartitions(BUCKET, *self.plan.keys)
        written = spread.mapInArrow(BucketWriter(self.table.folder), _WRITTEN).collect()
        return [DataFile(Path(row["path"]), row["rows"], row["bytes"]) for row in written]

    def _bucket(self) -> Any:
        return F.pmod(F.xxhash64(*self.plan.keys), F.lit(BUCKETS)).cast(LongType())

    def _check_columns(self, manifest: ViewManifest) -> None:
        commits = self.table.commits()
        if commits and commits[-1].properties[COLUMNS] != manifest.columns:
            raise InvalidInput(
                "at", f"the table in {self.root} has other columns; keep the view of the changed projection elsewhere"
            )

    def _kept(self) -> list[Commit]:
        """The newest commits that the same code has made, oldest first."""
        commits = self.table.commits()[-self.keep :]
        code = [(commit.properties[FINGERPRINT], commit.properties[COLUMNS]) for commit in commits]
        return [commit for commit, of in zip(commits, code, strict=True) if of == code[-1]]

    def _commit(self, version: Version) -> Commit:
        return next(commit for commit in reversed(self._kept()) if commit.position == version.position)

    def _sweep(self) -> None:
        """Remove the files that no kept commit has."""
        kept = self._kept()
        self.table.forget(kept)
        named = set().union(*(self.table.paths(commit.version) for commit in kept))
        for path in self.table.folder.glob("bucket-*.parquet"):
            if path not in named:
                path.unlink()


def _read(spark: SparkSession, schema: StructType, paths: set[Path]) -> DataFrame:
    places = sorted(f"file:{path}" for path in paths)
    return spark.read.schema(schema).parquet(*places) if places else spark.createDataFrame([], schema)


def _properties(manifest: ViewManifest, digest: str) -> dict[str, str]:
    return {
        f"{PREFIX}format": str(FORMAT),
        f"{PREFIX}projection": manifest.projection,
        FINGERPRINT: manifest.fingerprint,
        COLUMNS: manifest.columns,
        f"{PREFIX}digest": digest,
    }


def _bucket_of(path: Path) -> int:
    return int(path.name.split("-")[1])


@dataclass(frozen=True)
class BucketWriter:
    """Writes a file for each bucket among its rows, which are sorted by bucket; in a worker."""

    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            for bucket, parts in groupby(_parts(batches), key=lambda part: part[0]):
                target = self.folder / f"bucket-{bucket:03d}-{uuid4().hex}.parquet"
                rows = 0
                with durable_file(target) as draft:
                    writer = None
                    for _, part in parts:
                        writer = writer or pq.ParquetWriter(draft, part.schema, compression="zstd")
                        writer.write_batch(part)
                        rows += part.num_rows
                    assert writer is not None
                    writer.close()
                made = {"path": [str(target)], "rows": [rows], "bytes": [target.stat().st_size]}
                yield pa.RecordBatch.from_pydict(made)


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
