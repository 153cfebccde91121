"""A view in a Delta or an Iceberg table: a row for each key, readable by engines that know nothing of views.

The rows are spread over buckets by a hash of the key, each bucket in one file. A refresh rewrites only the buckets
that have a changed key, and replaces their files in one commit of the table format. That needs no MERGE, and the commit
carries the position, so a killed refresh has not happened and a repeated one is recognised. Commits are versions:
`View.at` reads the files of the commit at its position.

Invariant: the table's files at a commit hold exactly one row for each key of the view at the commit's position.
tests/spark/test_view_files.py compares it with the fold, and reads it with deltalake and pyiceberg alone;
tests/spark/slow/test_object_tables.py does so in an object store, where no lock keeps two refreshes apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final
from urllib.parse import parse_qsl

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType

from ...errors import InvalidInput
from ...storage import Storage
from ..basics import LINES, entries_in, locked
from ..folding import Plan
from ..formats import DELTA, ICEBERG, CatalogName, Change, Commit, DataFile, FileTable, State, TableChanged, table_of
from .bucket_files import BUCKET, path_in, read_files, write_buckets
from .folder import LOCK, view_storage
from .place import FORMAT, Version, ViewManifest

BUCKETS: Final = 16
TABLE: Final = "view"
PREFIX: Final = "fencepost."  # of the properties of a commit
FINGERPRINT: Final = f"{PREFIX}fingerprint"
COLUMNS: Final = f"{PREFIX}columns"
_BUCKET_FILE: Final = re.compile(r"bucket-(\d{3})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class FilesPlace:
    """A table of Parquet files. The versions are its newest commits."""

    kind: str  # delta or iceberg
    storage: Storage
    plan: Plan
    keep: int
    schema: StructType
    catalog: CatalogName | None = None

    @classmethod
    def at(cls, kind: str, place: str, plan: Plan, keep: int, schema: StructType) -> FilesPlace:
        """The place that a user names: a folder or a URL, for an Iceberg table with its catalog and table."""
        where, _, query = place.partition("?")
        catalog = _catalog_in(query, kind)
        storage = view_storage(where)
        if kind == ICEBERG and catalog is None and not storage.is_locked:
            url = storage.name()
            raise InvalidInput(
                "at",
                f"{url} is in an object store, which has no Iceberg catalog; name one of pyiceberg's configuration: "
                f"iceberg:{url}?catalog=NAME",
            )
        return cls(kind, storage, plan, keep, schema, catalog)

    @property
    def data(self) -> str:
        """The folder of the table's files, relative to the storage."""
        return "" if self.kind == DELTA else "data"

    @cached_property
    def table(self) -> FileTable:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        return table_of(
            self.kind, self.storage, data=self.data, home="", schema=schema, name=TABLE, catalog=self.catalog
        )

    def refreshing(self) -> AbstractContextManager[None]:
        """Hold the lock of a folder. An object store has none: there the commit of the table decides."""
        return locked(self.storage, LOCK, folder=self.data)

    def manifest(self) -> ViewManifest | None:
        return self._manifest(self.table.state())

    def _manifest(self, state: State) -> ViewManifest | None:
        commits = self._kept(state)
        if not commits:
            return None
        of = commits[-1].properties
        if int(of[f"{PREFIX}format"]) > FORMAT:
            raise InvalidInput("at", f"{self.storage.name()}: the view is of a newer format; upgrade Fencepost")
        return ViewManifest(
            projection=of[f"{PREFIX}projection"],
            fingerprint=of[FINGERPRINT],
            columns=of[COLUMNS],
            versions=tuple(
                Version(position=commit.position, digest=commit.properties[f"{PREFIX}digest"], layers=())
                for commit in commits
            ),
        )

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        return read_files(spark, self.storage, self.data, schema, self._files(version))

    states = saved  # a row has the state beside the other columns

    def save(self, changes: DataFrame, manifest: ViewManifest, position: int, digest: str) -> int:
        """Write the changed buckets, commit them, and remove the files that no kept version has.

        Files of a running refresh are among those that are removed only if its commit must fail. The files to remove
        were listed before this commit, so the refresh that wrote them had read an earlier state of the table.
        """
        state = self.table.state()
        self._check_base(state, manifest)
        self._check_columns(state, manifest)
        listed = [name for name in self.storage.listed(self.data) if _BUCKET_FILE.fullmatch(name)]
        try:
            added, replaced, changed = self._write(changes, state, manifest)
        except Exception as error:
            # The refresh that has committed meanwhile may have removed files that this one was reading.
            if self.table.state().commits != state.commits:
                raise self._overtaken() from error
            raise
        self.table.commit(state, Change(added, replaced, position, _properties(manifest, digest)))
        self._remove_unused(listed)
        return changed

    def _write(self, changes: DataFrame, state: State, manifest: ViewManifest) -> tuple[list[DataFile], set[str], int]:
        """Write the buckets that have a changed key; returns new files, those that they replace, and changed keys."""
        bucketed = changes.withColumn(BUCKET, self._bucket()).persist()
        try:
            touched = {row[0]: row[1] for row in bucketed.groupBy(BUCKET).count().collect()}
            replaced = {name for name in state.files if not manifest.versions or _bucket_of(name) in touched}
            rows = bucketed
            if replaced and manifest.versions:
                sizes = self.table.files(state.commits[-1].version)
                there = {name: sizes[name] for name in replaced}
                old = read_files(changes.sparkSession, self.storage, self.data, changes.schema, there)
                old = old.withColumn(BUCKET, self._bucket())
                rows = bucketed.unionByName(old.join(bucketed, list(self.plan.keys), "left_anti"))
            return self._written(rows) if touched else [], replaced, sum(touched.values())
        finally:
            bucketed.unpersist()

    def _written(self, rows: DataFrame) -> list[DataFile]:
        """Write the rows of each bucket to a file; in the workers."""
        spread = rows.repartition(BUCKET).sortWithinPartitions(BUCKET, *self.plan.keys)
        return entries_in(spread.mapInArrow(partial(write_buckets, self.storage, self.data), LINES), DataFile)

    def _bucket(self) -> Any:
        return F.pmod(F.xxhash64(*self.plan.keys), F.lit(BUCKETS)).cast(LongType())

    def _check_base(self, state: State, manifest: ViewManifest) -> None:
        """The table must be in the state that the changes were folded on."""
        there = self._manifest(state)
        ours = (manifest.fingerprint, manifest.columns)
        newest = there.versions[-1] if there is not None and (there.fingerprint, there.columns) == ours else None
        if newest != (manifest.versions[-1] if manifest.versions else None):
            raise self._overtaken()

    def _overtaken(self) -> TableChanged:
        return TableChanged(f"{self.storage.name()}: another process has refreshed this view; try again")

    def _check_columns(self, state: State, manifest: ViewManifest) -> None:
        commits = state.commits
        if commits and commits[-1].properties[COLUMNS] != manifest.columns:
            raise InvalidInput(
                "at",
                f"the table in {self.storage.name()} has other columns; keep the view of the changed projection "
                "elsewhere",
            )

    def _kept(self, state: State) -> list[Commit]:
        """The newest commits that the same code has made, oldest first."""
        commits = state.commits[-self.keep :]
        code = [(commit.properties[FINGERPRINT], commit.properties[COLUMNS]) for commit in commits]
        return [commit for commit, of in zip(commits, code, strict=True) if of == code[-1]]

    def _files(self, version: Version) -> dict[str, int]:
        kept = self._kept(self.table.state())
        found = [commit for commit in kept if commit.position == version.position]
        if not found:
            raise self._overtaken()
        return self.table.files(found[-1].version)

    def _remove_unused(self, listed: Sequence[str]) -> None:
        """Remove those of the listed files that no kept commit has: of old versions, and of killed refreshes."""
        kept = self._kept(self.table.state())
        self.table.forget(kept)
        named = set[str]().union(*(self.table.files(commit.version) for commit in kept))
        for name in listed:
            if name not in named:
                self.storage.delete(path_in(self.data, name))


def _catalog_in(query: str, kind: str) -> CatalogName | None:
    """The catalog and the table that follow on a question mark, as in `?catalog=NAME&table=NAMESPACE.TABLE`."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - ({"catalog", "table"} if kind == ICEBERG else set()))
    if unknown:
        takes = "catalog and table" if kind == ICEBERG else "no options"
        raise InvalidInput("at", f"unknown option {unknown[0]!r:.80}; a view in a table of {kind} takes {takes}")
    return CatalogName.of(options.get("catalog"), options.get("table"), fields=("at: catalog", "at: table"))


def _properties(manifest: ViewManifest, digest: str) -> dict[str, str]:
    return {
        f"{PREFIX}format": str(FORMAT),
        f"{PREFIX}projection": manifest.projection,
        FINGERPRINT: manifest.fingerprint,
        COLUMNS: manifest.columns,
        f"{PREFIX}digest": digest,
    }


def _bucket_of(name: str) -> int:
    found = _BUCKET_FILE.fullmatch(name)
    if found is None:
        raise InvalidInput("at", f"the table has a file {name!r:.80}, which no refresh of a view has written")
    return int(found[1])
