"""Views: folds that are kept, and brought up to date by folding only what is new.

    view = View(Balance, by="wallet_id", at="file:/data/balances", store="wallet.db")
    view.refresh()
    view.latest().show()

A refresh takes the saved states and the events after the view's position through the same fold as
everything else, and saves the keys that have changed together with the new position, in one step:
whoever looks sees the view before or after it. So a refresh that is killed has not happened, and
one that is repeated does nothing. What was folded by other code, or from another log, is never
gone on from: the first is folded anew, the second refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ..decisions import Projection
from ..decisions.snapshots import digest_of, fingerprint
from ..errors import InvalidInput, StoreUnavailable
from ..model import checked_position
from .columns import WIDE
from .fold_log import Log, log_of, no_rows
from .fold_plan import POSITION, STATE, UPTO, OnError, Plan
from .folding import Folder, grouped
from .locking import PATIENCE_S, patiently
from .options import absolute
from .scanning import scan_of
from .secrets import place_of
from .session import session
from .view_files import (
    Layer,
    Manifest,
    Version,
    check_folder,
    layer_place,
    read_manifest,
    refreshing,
    settled,
    sweep,
    write_manifest,
)

MOST_LAYERS: Final = 8  # more are put together into one
FEW_EVENTS: Final = 100_000  # are kept in memory while they are folded, since they are looked at twice
KEPT: Final = 16  # versions, unless the user says otherwise
LAYER: Final = "number of the layer"  # with spaces, which no field's name has


@dataclass(frozen=True)
class Refreshed:
    """What a refresh has done: the view covers everything up to `position` now."""

    position: int
    changed: int  # keys that have a new state
    rebuilt: bool  # folded from the beginning: it is new, or the projection has changed


class Place(Protocol):
    """Where a view is kept."""

    def refreshing(self) -> AbstractContextManager[None]:
        """One refresh at a time."""

    def manifest(self) -> Manifest | None: ...

    def saved(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame | None:
        """A row for each key, in the schema of all saved columns; None if they are to be made of the states."""

    def states(self, spark: SparkSession, schema: StructType, version: Version) -> DataFrame:
        """The rows to go on from; a key may have older ones as well."""

    def save(self, changes: DataFrame, manifest: Manifest, position: int, digest: str) -> int:
        """Keep the changed rows and the position, both or neither; how many rows.

        The manifest says what they are changes of: nothing, if it has no versions.
        """


class View:
    """A fold that is kept at a place: `file:<folder>`, or a table in PostgreSQL (`postgresql://…?table=balances`).

    `store` is the address of the log, needed to refresh; reading needs it only for positions that
    no version is at. `keep` is how many versions stay, for `at`. `spark` is the active session, or
    one of `fencepost.spark.session()`. The rest is as for `fold`.
    """

    def __init__(
        self,
        projection: type[Projection],
        *,
        by: str | Sequence[str],
        at: str,
        store: str | None = None,
        spark: SparkSession | None = None,
        on_error: OnError = "fail",
        schema: str | StructType | None = None,
        keep: int = KEPT,
        partitions: int | None = None,
    ) -> None:
        if not isinstance(keep, int) or keep < 1:
            raise InvalidInput("keep", f"at least 1 version is needed, not {keep!r}")
        self._plan = Plan.of(projection, by, on_error=on_error, schema=schema)
        self._store = store
        self._spark = spark
        self._partitions = partitions
        self._place = _place(at, self._plan, keep)
        wide = store is not None and store.startswith("fdb:")
        self._manifest = Manifest(
            projection=projection.definition.name,
            fingerprint=sha256(fingerprint(projection) + on_error.encode()).hexdigest(),
            columns=self._plan.saved_schema(wide).json(),
        )

    @property
    def position(self) -> int:
        """What the view covers: everything up to here; 0 before the first refresh."""
        manifest = self._usable()
        return manifest.versions[-1].position if manifest is not None else 0

    @property
    def versions(self) -> list[int]:
        """The positions at which a version is kept, oldest first."""
        manifest = self._usable()
        return [version.position for version in manifest.versions] if manifest is not None else []

    def refresh(self, *, upto: int | None = None) -> Refreshed:
        """Fold in what is new, up to the store's head or `upto`."""
        return self._refresh(upto, patience_s=0.0)

    def _refresh(self, upto: int | None, *, patience_s: float) -> Refreshed:
        store = self._needed_store()
        if upto is not None:
            checked_position(upto, "upto")
        with patiently(self._place.refreshing, patience_s):
            usable = self._usable()
            base = None if usable is None else usable.versions[-1]
            start = 0 if base is None else base.position
            end, digest = self._looked_at(store, base, upto)
            if base is not None and end <= start:
                return Refreshed(start, 0, False)
            log = log_of(self._session(), store, self._plan, after=start, upto=end)
            few = base is not None and end - start <= FEW_EVENTS
            if few:
                log = replace(log, rows=log.rows.persist())
            try:
                changes = self._folded(log, base, saving=True, few=few)
                changed = self._place.save(changes, usable or self._manifest, end, digest)
            finally:
                if few:
                    log.rows.unpersist()
        return Refreshed(end, changed, base is None)

    def latest(self) -> DataFrame:
        """The view as it is, at its `position`: the columns of `fold`."""
        return self.at(self._existing().versions[-1].position)

    def at(self, position: int) -> DataFrame:
        """The view as it was when the log ended at the position.

        Where a version is kept, it is read. Everywhere else, below the view's own position, the log is
        folded from the newest version before it, or from the beginning if there is none.
        """
        checked_position(position, "position")
        manifest = self._existing()
        covered = manifest.versions[-1].position
        if position > covered:
            raise InvalidInput("position", f"{position} is above what the view covers, {covered}; refresh it first")
        version = manifest.before(position)
        if version is not None and version.position == position:
            frame = self._read(_schema(manifest), version)
        elif self._store is None:
            kept = ", ".join(str(version.position) for version in manifest.versions)
            raise InvalidInput(
                "position", f"versions are kept at {kept}; for others, name the store: View(..., store=)"
            )
        else:
            after = 0 if version is None else version.position
            log = log_of(self._session(), self._store, self._plan, after=after, upto=position)
            frame = self._folded(log, version, saving=False)
        return frame.withColumn(UPTO, F.lit(position).cast(frame.schema[POSITION].dataType))

    def follow(
        self, *, checkpoint: str, name: str | None = None, max_events: int | None = None, **trigger: Any
    ) -> StreamingQuery:
        """Refresh now and whenever the log grows, as a streaming query.

        `trigger` is what Spark calls so: `processingTime="10 seconds"`, or `availableNow=True` to end when
        the view is current. A batch that Spark repeats after a crash finds the view beyond it and does nothing;
        one that finds another refresh at work waits for it, up to a minute.
        `name` is the query's, `max_events` the most in one batch.
        """
        store = self._needed_store()
        # The batch is only asked where it ends; a refresh reads the events, with the columns that it needs.
        column = f"position {'decimal(38,0)' if store.startswith('fdb:') else 'long'}"
        ends = self._session().readStream.format("fencepost").schema(column).options(**place_of(store))
        if max_events is not None:
            ends = ends.option("maxEventsPerTrigger", str(max_events))

        # With Spark Connect the function travels to the server, and a session does not travel.
        view = copy(self)
        view._spark = None

        def refresh_batch(batch: DataFrame, batch_id: int) -> None:
            (end,) = batch.agg(F.max(POSITION)).collect()[0]
            if end is not None:
                view._spark = batch.sparkSession
                view._refresh(int(end), patience_s=PATIENCE_S)

        writer = ends.load().writeStream.foreachBatch(refresh_batch).option("checkpointLocation", checkpoint)
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(queryName=name)

    def _read(self, schema: StructType, version: Version) -> DataFrame:
        saved = self._place.saved(self._session(), schema, version)
        if saved is not None:
            return saved.drop(STATE, *self._plan.keys)
        wide = schema[POSITION].dataType == WIDE
        return self._folded(
            Log(no_rows(self._session(), self._plan, wide), version.position, wide), version, saving=False
        )

    def _folded(self, log: Log, base: Version | None, *, saving: bool, few: bool = False) -> DataFrame:
        """The log on top of a version. Where few keys are to be saved, only their states are gone on from."""
        rows = log.rows
        if base is not None:
            saved = self._place.states(self._session(), self._plan.saved_schema(log.wide), base)
            if few:
                touched = rows.select(*self._plan.keys)
                saved = saved.join(F.broadcast(touched), list(self._plan.keys), "left_semi")
            nothing = [F.lit(None).alias(name) for name in rows.columns[len(self._plan.keys) + 3 :]]
            states = saved.select(
                *self._plan.keys,
                POSITION,
                F.lit(None).cast("string").alias("type"),
                F.col(STATE).alias("data"),
                *nothing,
            )
            rows = rows.unionByName(states)
        schema = self._plan.saved_schema(log.wide) if saving else self._plan.folded_schema(log.wide)
        return grouped(rows, self._plan, self._partitions).mapInArrow(Folder(self._plan, log.wide, saving), schema)

    def _usable(self) -> Manifest | None:
        """What is kept, if this very projection has folded it."""
        found = self._place.manifest()
        if found is None or not found.versions:
            return None
        ours = self._manifest
        if found.projection != ours.projection:
            raise InvalidInput(
                "at", f"a view of {found.projection} is kept there, and this is one of {ours.projection}"
            )
        return found if (found.fingerprint, found.columns) == (ours.fingerprint, ours.columns) else None

    def _existing(self) -> Manifest:
        manifest = self._usable()
        if manifest is None:
            raise StoreUnavailable("the view is not there yet, or was folded by other code; refresh it first")
        return manifest

    def _looked_at(self, store: str, base: Version | None, upto: int | None) -> tuple[int, str]:
        """Where this refresh ends, with the digest of the event there; refused if the log is another one."""
        with scan_of(absolute(store)).open() as opened:
            head = opened.head()
            end = head if upto is None else min(upto, head)

            def digest(position: int) -> str:
                found = list(opened.read(after=position - 1, upto=position)) if position else []
                return digest_of(found[0]).hex() if found else ""

            if base is not None and (base.position > head or digest(base.position) != base.digest):
                raise InvalidInput(
                    "store",
                    f"the view was folded from another log: its event at position {base.position} is not this store's",
                )
            return end, digest(end)

    def _needed_store(self) -> str:
        if self._store is None:
            raise InvalidInput("store", "missing; a refresh reads the log: View(..., store='wallet.db')")
        return self._store

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = SparkSession.getActiveSession() or session()
        return self._spark


def _place(at: str, plan: Plan, keep: int) -> Place:
    scheme, colon, rest = at.partition(":") if isinstance(at, str) else ("", "", "")
    if colon and scheme == "file" and rest:
        # file:///data/x is file:/data/x, and file:x begins where the program runs.
        folder = Path("/" + rest.lstrip("/") if rest.startswith("/") else rest).absolute()
        check_folder(folder)
        return FolderPlace(folder, plan, keep)
    if colon and scheme in ("postgresql", "postgres"):
        from .view_table import TablePlace

        return TablePlace.of(at, plan)
    raise InvalidInput("at", f"file:<folder> or postgresql://…?table=<name> is needed, not {at!r:.80}")


@dataclass(frozen=True)
class FolderPlace:
    """Layers of Parquet files; every version that is kept can be read as it was."""

    folder: Path
    plan: Plan
    keep: int

    def refreshing(self) -> AbstractContextManager[None]:
        return refreshing(self.folder)

    def manifest(self) -> Manifest | None:
        return read_manifest(self.folder)

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

    def save(self, changes: DataFrame, manifest: Manifest, position: int, digest: str) -> int:
        there = self.manifest()
        sweep(self.folder, there.versions if there is not None else ())  # what a killed refresh has left
        layer = self._write(changes, position)
        before = manifest.versions[-1].layers if manifest.versions else ()
        version = Version(position=position, digest=digest, layers=(*before, layer) if layer.rows else before)
        if _is_ragged(version.layers):
            merged = self._write(self.saved(changes.sparkSession, changes.schema, version), position)
            version = msgspec.structs.replace(version, layers=(merged,))
        kept = (*manifest.versions, version)[-self.keep :]
        write_manifest(self.folder, msgspec.structs.replace(manifest, versions=kept))
        sweep(self.folder, kept)
        return layer.rows

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


def _is_ragged(layers: Sequence[Layer]) -> bool:
    """Whether there are so many layers, or so much in them, that one would be better to read."""
    return len(layers) > MOST_LAYERS or sum(layer.rows for layer in layers) > 2 * (layers[0].rows if layers else 0)


def _schema(manifest: Manifest) -> StructType:
    return StructType.fromJson(json.loads(manifest.columns))
