"""Views: folds that are kept, and brought up to date by folding only the new events.

    view = View(Balance, by="wallet_id", at="file:/data/balances", store="wallet.db")
    view.refresh()
    view.latest().show()

A refresh passes the saved states and the events after the view's position through the same fold as everything else,
and saves the changed keys together with the new position, in one step. So a killed refresh has not happened, and a
repeated one does nothing. A view that other code has folded is folded again from the beginning; one that was folded
from another log is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructType

from ...address import POSTGRES, Address, object_url
from ...decisions import Projection
from ...decisions.snapshots import digest_of, fingerprint
from ...errors import InvalidInput, StoreUnavailable
from ...model import checked_position
from ...redaction import redacted
from ..basics import PATIENCE_S, Batch, absolute_lake, address_of, changing, follow_ranges, position_type
from ..folding import POSITION, STATE, UPTO, Folder, Log, OnError, Plan, log_of
from ..formats import FORMATS
from ..scanning import scan_of
from ..session import session
from .changes import check_names, combined, compared
from .files import FilesPlace
from .folder import FolderPlace, view_storage
from .place import Place, Version, ViewManifest

FEW_EVENTS: Final = 100_000  # are cached while they are folded, because they are read twice
KEPT: Final = 16  # versions, by default


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh: the view now covers every event up to `position`."""

    position: int
    changed: int  # keys whose state has changed
    rebuilt: bool  # folded from the beginning: the view is new, or the projection has changed


class View:
    """A fold that is kept at a place: `file:<folder>`, a prefix of an object store (`s3://<bucket>/<prefix>`), a Delta
    or an Iceberg table (`delta:<folder>`, `iceberg:<folder>`), or a table in PostgreSQL
    (`postgresql://…?table=balances`).

    `store` is the address of the log. A refresh needs it; reading needs it only for positions at which no version is
    kept. `keep` is the number of versions that are kept. `spark` is by default the active session, or one of
    `fencepost.spark.session()`. With `changes`, each refresh of a view in a folder or an object store also
    records what it changes. The other parameters are those of `fold`.
    """

    def __init__(
        self,
        projection: type[Projection],
        *,
        by: str | Sequence[str],
        at: str,
        store: str | Address | None = None,
        spark: SparkSession | None = None,
        on_error: OnError = "fail",
        schema: str | StructType | None = None,
        keep: int = KEPT,
        partitions: int | None = None,
        lake: str | None = None,
        changes: bool = False,
    ) -> None:
        if not isinstance(keep, int) or keep < 1:
            raise InvalidInput("keep", f"at least 1 version is needed, not {keep!r}")
        self._plan = Plan.of(projection, by, on_error=on_error, schema=schema)
        self._store = None if store is None else address_of(store)
        self._spark = spark
        self._partitions = partitions
        self._lake = None if lake is None else absolute_lake(lake, "lake")
        position = LongType() if self._store is None else position_type(self._store)
        self._place = _place_at(at, self._plan, keep, self._plan.saved_schema(position))
        self._recording = changes
        if changes and not isinstance(self._place, FolderPlace):
            raise InvalidInput(
                "changes", "only a view in a folder or an object store records changes; View.changes compares versions"
            )
        if changes:
            check_names(self._plan)
        self._manifest = ViewManifest(
            projection=projection.definition.name,
            fingerprint=sha256(fingerprint(projection) + on_error.encode()).hexdigest(),
            columns=self._plan.saved_schema(position).json(),
        )

    @property
    def position(self) -> int:
        """The view covers every event up to this position; 0 before the first refresh."""
        return max(self.versions, default=0)

    @property
    def versions(self) -> list[int]:
        """The positions at which a version is kept, oldest first."""
        manifest = self._usable(self._place.manifest())
        return [version.position for version in manifest.versions] if manifest is not None else []

    def refresh(self, *, upto: int | None = None) -> Refreshed:
        """Fold the new events, up to the store's head or `upto`."""
        return self._refresh(upto, patience_s=0.0)

    def _refresh(self, upto: int | None, *, patience_s: float) -> Refreshed:
        store = self._needed_store()
        if upto is not None:
            checked_position(upto, "upto")
        return changing(self._place.refreshing, partial(self._refreshed, store, upto), patience_s)

    def _refreshed(self, store: Address, upto: int | None) -> Refreshed:
        """Refresh once; the caller holds the lock, if the place has one."""
        found = self._place.manifest()
        usable = self._usable(found)
        self._publish(usable)
        base = None if usable is None else usable.versions[-1]
        start = 0 if base is None else base.position
        end, digest = self._end(store, base, upto)
        if base is not None and end <= start:
            return Refreshed(start, 0, False)
        log = log_of(self._session(), store, self._plan, after=start, upto=end, lake=self._lake)
        few = base is not None and end - start <= FEW_EVENTS
        if few:
            log = replace(log, rows=log.rows.persist())
        try:
            changes = self._folded(log, base, saving=True, recording=self._recording, few=few)
            changed = self._place.save(changes, usable or self._manifest.following(found), end, digest)
        finally:
            if few:
                log.rows.unpersist()
        self._publish(self._usable(self._place.manifest()))
        return Refreshed(end, changed, base is None)

    def latest(self) -> DataFrame:
        """The view at its `position`, with the columns of `fold`."""
        return self.at(self._existing().versions[-1].position)

    def at(self, position: int) -> DataFrame:
        """The view as it was when the log ended at the position.

        If a version is kept there, it is read. Otherwise the log is folded from the newest version before the
        position, or from the beginning if there is none.
        """
        checked_position(position, "position")
        manifest = self._existing()
        covered = manifest.versions[-1].position
        if position > covered:
            raise InvalidInput("position", f"{position} is above the view's position, {covered}; refresh it first")
        version = manifest.before(position)
        if version is not None and version.position == position:
            frame = self._read(_schema(manifest), version)
        elif self._store is None:
            kept = ", ".join(str(version.position) for version in manifest.versions)
            raise InvalidInput(
                "position", f"versions are kept at {kept}; for other positions, name the store: View(..., store=)"
            )
        else:
            after = 0 if version is None else version.position
            log = log_of(self._session(), self._store, self._plan, after=after, upto=position, lake=self._lake)
            frame = self._folded(log, version, saving=False)
        return frame.withColumn(UPTO, F.lit(position).cast(frame.schema[POSITION].dataType))

    @property
    def generation(self) -> str:
        """Names the projection's code and columns. If it differs from the one that earlier changes were read with, the
        view was folded again by other code: read the whole view."""
        return self._manifest.generation

    def changes(self, *, after: int = 0, upto: int | None = None, generation: str | None = None) -> DataFrame:
        """What changed in the view after one position, up to the view's position or `upto`: a row for each changed key.

        The columns are the key, `before` (null for a new key), `after`, and `position`, which is `upto` for each row.
        Applied to the view at `after` they give the view at `upto`. `generation` refuses changes of other code than
        the ones that were read before. Recorded changes are read if both positions are versions; otherwise the two
        versions are compared.
        """
        check_names(self._plan)
        checked_position(after, "after")
        manifest = self._existing()
        if generation is not None and generation != manifest.generation:
            raise InvalidInput(
                "generation",
                f"the view is of generation {manifest.generation}, not {generation!r:.40}: other code has folded it; "
                "read the whole view with changes(after=0), and replace what you have",
            )
        covered = manifest.versions[-1].position
        end = covered if upto is None else checked_position(upto, "upto")
        if end > covered:
            raise InvalidInput("upto", f"{end} is above the view's position, {covered}; refresh it first")
        if after > end:
            raise InvalidInput("after", f"{after} is above the end of the changes, {end}")
        kept = [version.position for version in manifest.versions]
        if isinstance(self._place, FolderPlace) and after in kept and end in kept and after < end:
            between = [version for version in manifest.versions if after < version.position <= end]
            recorded = self._place.recorded(self._session(), _schema(manifest), between)
            if recorded is not None:
                return combined(self._plan, recorded, end)
        return compared(self._plan, None if after == 0 else self.at(after), self.at(end), end)

    def _publish(self, manifest: ViewManifest | None) -> None:
        if self._recording and manifest is not None:
            assert isinstance(self._place, FolderPlace)  # no other place records changes
            self._place.publish(self._session(), _schema(manifest), manifest)

    def follow(
        self, *, checkpoint: str, name: str | None = None, max_events: int | None = None, **trigger: Any
    ) -> StreamingQuery:
        """Refresh now and whenever the log grows, as a streaming query.

        `trigger` is Spark's: `processingTime="10 seconds"`, or `availableNow=True` to end when the view is current.
        A batch that Spark repeats after a crash finds the view ahead of it and does nothing. A batch that finds
        another refresh at work waits for it, for at most a minute. `name` is the query's name, `max_events` the
        largest batch.
        """
        store = self._needed_store()
        # With Spark Connect the function is pickled and sent to the server; a session cannot be pickled.
        view = copy(self)
        view._spark = None

        def refresh_batch(session: SparkSession, batch: Batch) -> None:
            view._spark = session
            view._refresh(batch.upto, patience_s=PATIENCE_S)

        return follow_ranges(
            self._session(),
            store,
            refresh_batch,
            checkpoint=checkpoint,
            name=name,
            max_events=max_events,
            trigger=trigger,
        )

    def _read(self, schema: StructType, version: Version) -> DataFrame:
        saved = self._place.saved(self._session(), schema, version)
        if saved is not None:
            return saved.drop(STATE, *self._plan.keys)
        position = schema[POSITION].dataType
        nothing = self._session().createDataFrame([], self._plan.rows_schema(position))
        return self._folded(Log(nothing, version.position, position), version, saving=False)

    def _folded(
        self, log: Log, base: Version | None, *, saving: bool, recording: bool = False, few: bool = False
    ) -> DataFrame:
        """The log folded on top of a version. `few`: read only the states of the keys that the log has."""
        rows = log.rows
        if base is not None:
            wanted = (*self._plan.keys, POSITION, STATE)
            kept = [field for field in self._plan.saved_schema(log.position).fields if field.name in wanted]
            saved = self._place.states(self._session(), StructType(kept), base)
            if few:
                touched = rows.select(*self._plan.keys)
                saved = saved.join(F.broadcast(touched), list(self._plan.keys), "left_semi")
            nothing = [F.lit(None).alias(field.name) for field in self._plan.details]
            states = saved.select(
                *self._plan.keys,
                POSITION,
                F.lit(None).cast("string").alias("type"),
                F.col(STATE).alias("data"),
                *nothing,
            )
            rows = rows.unionByName(states)
        return Folder(self._plan, log.position, saving, recording).folded(rows, self._partitions)

    def _usable(self, found: ViewManifest | None) -> ViewManifest | None:
        """The manifest that was found, if the same code of the projection has folded the view."""
        if found is None or not found.versions:
            return None
        ours = self._manifest
        if found.projection != ours.projection:
            raise InvalidInput("at", f"the view kept there is of {found.projection}, not of {ours.projection}")
        return found if (found.fingerprint, found.columns) == (ours.fingerprint, ours.columns) else None

    def _existing(self) -> ViewManifest:
        manifest = self._usable(self._place.manifest())
        if manifest is None:
            raise StoreUnavailable("there is no such view yet, or other code has folded it; refresh it first")
        return manifest

    def _end(self, store: Address, base: Version | None, upto: int | None) -> tuple[int, str]:
        """The position at which this refresh ends, with the digest of its event; refuses another log."""
        with scan_of(store).open() as opened:
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

    def _needed_store(self) -> Address:
        if self._store is None:
            raise InvalidInput("store", "missing; a refresh reads the log: View(..., store='wallet.db')")
        return self._store

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = SparkSession.getActiveSession() or session()
        return self._spark


def _place_at(at: str, plan: Plan, keep: int, schema: StructType) -> Place:
    """The place that the address of a view names; the view has these columns, and keeps that many versions."""
    scheme, _, rest = at.partition(":") if isinstance(at, str) else ("", "", "")
    if scheme in FORMATS and rest:
        return FilesPlace.at(scheme, rest, plan, keep, schema)
    if isinstance(at, str) and ((scheme == "file" and rest) or object_url(at, "at") is not None):
        return FolderPlace.of(view_storage(at), plan, keep)
    if scheme in POSTGRES.schemes:
        from .table import TablePlace

        return TablePlace.of(at, plan)
    given = redacted(at) if isinstance(at, str) else type(at).__name__
    forms = "file:<folder>, s3://<bucket>/<prefix>, delta:<folder>, iceberg:<folder> or postgresql://…?table=<name>"
    raise InvalidInput("at", f"{forms} is needed, not {given!r:.80}")


def _schema(manifest: ViewManifest) -> StructType:
    return StructType.fromJson(json.loads(manifest.columns))
