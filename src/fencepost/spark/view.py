"""Views: folds that are kept, and brought up to date by folding only the new events.

    view = View(Balance, by="wallet_id", at="/data/balances", store="wallet.db")
    view.refresh()
    view.latest().show()

A view is a Delta table with a row for each key. A refresh passes the saved states and the events after the view's
position through the same fold as everything else, and saves the changed keys together with the new position, in one
commit. So a killed refresh has not happened, and a repeated one does nothing. A view that other code has folded is
folded again from the beginning; one that was folded from another log is refused. tests/spark/test_view.py compares
views with folds, and tests/spark/slow/test_view_kills.py kills refreshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructType

from ..decisions import Projection
from ..decisions.inspection import fingerprint
from ..engine import Address, checked_position
from ..errors import InvalidInput, StoreUnavailable
from .basics import Batch, absolute_location, address_of, follow_ranges, position_type
from .delta import PATIENCE_S, DataFile, Version, changing
from .folding import (
    ERROR,
    POSITION,
    STATE,
    UPTO,
    VALID_FROM,
    VALID_FROM_TIME,
    VALID_TO,
    VALID_TO_TIME,
    Folder,
    Log,
    OnError,
    Plan,
    log_of,
    refuse_names,
)
from .scanning import digest_at, scan_of
from .spark_session import session
from .view_table import ViewTable, table_at

FEW_EVENTS: Final = 100_000  # are cached while they are folded, because they are read twice
KEPT: Final = 16  # versions, by default
GENERATION_LENGTH: Final = 16
BEFORE: Final = "before"
AFTER: Final = "after"


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh: the view now covers every event up to `position`."""

    position: int
    changed: int  # keys whose state has changed
    rebuilt: bool  # folded from the beginning: the view is new, or the projection has changed


class View:
    """A fold that is kept as a Delta table, in a folder or below a prefix of an object store: `s3://<bucket>/<prefix>`.

    `store` is the address of the log. A refresh needs it; reading needs it only for positions at which no version is
    kept. `keep` is the number of versions that are kept. `spark` is by default the active session, or one of
    `fencepost.spark.session()`. With `history`, the table has a row for each key and change: see `history()`. The other
    parameters are those of `fold`.
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
        history: bool = False,
    ) -> None:
        if not isinstance(keep, int) or keep < 1:
            raise InvalidInput("keep", f"at least 1 version is needed, not {keep!r}")
        self._plan = Plan.of(projection, by, on_error=on_error, schema=schema, history=history)
        self._store = None if store is None else address_of(store)
        self._spark = spark
        self._partitions = partitions
        self._lake = None if lake is None else absolute_location(lake, "lake")
        columns = self._plan.saved_schema(LongType() if self._store is None else position_type(self._store))
        code = sha256(fingerprint(projection) + on_error.encode()).hexdigest()
        self._table = ViewTable(
            table_at(at),
            self._plan,
            columns,
            projection.definition.name,
            sha256(f"{code} {columns.json()}".encode()).hexdigest()[:GENERATION_LENGTH],
            keep,
        )

    @property
    def position(self) -> int:
        """The view covers every event up to this position; 0 before the first refresh."""
        return max(self.versions, default=0)

    @property
    def versions(self) -> list[int]:
        """The positions at which a version is kept, oldest first."""
        return [version.position for version in self._table.versions()]

    def refresh(self, *, up_to: int | None = None) -> Refreshed:
        """Fold the new events, up to the store's head or `up_to`.

        If another process refreshes the view at the same time, one of the two commits, and `StoreUnavailable` tells
        the other to try again.
        """
        return self._refresh(up_to, patience_s=0.0)

    def _refresh(self, up_to: int | None, *, patience_s: float) -> Refreshed:
        store = self._needed_store()
        if up_to is not None:
            checked_position(up_to, "up_to")
        return changing(partial(self._refreshed, store, up_to), patience_s)

    def _refreshed(self, store: Address, up_to: int | None) -> Refreshed:
        """Refresh once; raises `TableChanged` if another process has refreshed the view meanwhile."""
        base = next(reversed(self._table.versions()), None)
        start = 0 if base is None else base.position
        end, digest = self._end(store, base, up_to)
        if base is not None and end <= start:
            return Refreshed(start, 0, False)
        log = log_of(self._session(), store, self._plan, after=start, up_to=end, lake=self._lake)
        few = base is not None and end - start <= FEW_EVENTS
        if few:
            log = replace(log, rows=log.rows.persist())
        try:
            changed = self._table.save(self._folded(log, base, saving=True, few=few), base, end, digest)
        finally:
            if few:
                log.rows.unpersist()
        return Refreshed(end, changed, base is None)

    def latest(self) -> DataFrame:
        """The view at its `position`, with the columns of `fold`."""
        return self.at(self._existing()[-1].position)

    def at(self, position: int) -> DataFrame:
        """The view as it was when the log ended at the position.

        If a version is kept there, it is read. Otherwise the log is folded from the newest version before the
        position, or from the beginning if there is none.
        """
        checked_position(position, "position")
        versions = self._existing()
        covered = versions[-1].position
        if position > covered:
            raise InvalidInput("position", f"{position} is above the view's position, {covered}; refresh it first")
        version = next((version for version in reversed(versions) if version.position <= position), None)
        if self._plan.history:
            rows = self._history(versions[-1])
            is_valid = F.col(VALID_TO).isNull() | (F.col(VALID_TO) > F.lit(position))
            frame = rows.where((F.col(VALID_FROM) <= F.lit(position)) & is_valid)
            frame = frame.select(*self._plan.folded_schema(rows.schema[POSITION].dataType).names)
        elif version is not None and version.position == position:
            saved = self._table.read(self._session(), self._table.schema, self._table.files(version))
            frame = saved.drop(STATE, *self._plan.keys)
        elif self._store is None:
            kept = ", ".join(str(version.position) for version in versions)
            raise InvalidInput(
                "position", f"versions are kept at {kept}; for other positions, name the store: View(..., store=)"
            )
        else:
            after = 0 if version is None else version.position
            log = log_of(self._session(), self._store, self._plan, after=after, up_to=position, lake=self._lake)
            frame = self._folded(log, version, saving=False)
        return frame.withColumn(UPTO, F.lit(position).cast(frame.schema[POSITION].dataType))

    def history(self) -> DataFrame:
        """A row for each key and each event that concerns it: the state from that event on, until the next one.

        The columns are the key, the state's fields, and `valid_from` and `valid_to`, the positions of the two events,
        with `valid_from_time` and `valid_to_time`, when they were recorded. `valid_to` is exclusive, and null in the
        row that is valid now. So the rows with valid_from <= p and (valid_to is null or valid_to > p) are `at(p)`.
        """
        if not self._plan.history:
            raise InvalidInput("history", "this view keeps no history; create it with View(..., history=True)")
        names = [*self._plan.scope, *self._plan.state.names, VALID_FROM, VALID_TO, VALID_FROM_TIME, VALID_TO_TIME]
        return self._history(self._existing()[-1]).select(*names)

    def _history(self, version: Version) -> DataFrame:
        return self._table.read(self._session(), self._table.schema, self._table.files(version))

    @property
    def generation(self) -> str:
        """Names the projection's code and columns. If it differs from the one that earlier changes were read with, the
        view was folded again by other code: read the whole view."""
        return self._table.generation

    def changes(self, *, after: int = 0, up_to: int | None = None, generation: str | None = None) -> DataFrame:
        """What changed in the view after one position, up to its own position or `up_to`: a row for each changed key.

        The columns are the key, `before` (null for a new key), `after`, and `position`, which is `up_to` for each row.
        Applied to the view at `after` they give the view at `up_to`. `generation` refuses changes of other code than
        the ones that were read before. If both positions are versions, only the files that differ are compared.
        """
        problem = "changes of a view have a column of this name; rename the parameter, and name its tag with tag('...')"
        refuse_names("parameter", self._plan.scope, [BEFORE, AFTER, POSITION], problem)
        checked_position(after, "after")
        versions = {version.position: version for version in self._existing()}
        if generation is not None and generation != self.generation:
            raise InvalidInput(
                "generation",
                f"the view is of generation {self.generation}, not {generation!r:.40}: other code has folded it; "
                "read the whole view with changes(after=0), and replace what you have",
            )
        covered = max(versions)
        end = covered if up_to is None else checked_position(up_to, "up_to")
        if end > covered:
            raise InvalidInput("up_to", f"{end} is above the view's position, {covered}; refresh it first")
        if after > end:
            raise InvalidInput("after", f"{after} is above the end of the changes, {end}")
        if self._plan.history or after not in versions or end not in versions:
            return self._compared(None if after == 0 else self.at(after), self.at(end), end)
        old, new = (self._table.files(versions[position]) for position in (after, end))

        def rows(files: dict[str, DataFile], others: dict[str, DataFile]) -> DataFrame:
            kept = {path: file for path, file in files.items() if path not in others}
            return self._table.read(self._session(), self._table.schema, kept)

        return self._compared(rows(old, new), rows(new, old), end)

    def _compared(self, before: DataFrame | None, after: DataFrame, position: int) -> DataFrame:
        """The changed keys of two versions. A row changes exactly when its `position` or its `error` does."""
        scope, kind = self._plan.scope, after.schema[POSITION].dataType
        columns = self._plan.row_schema(kind).names
        new = after.select(*scope, F.struct(*columns).alias(AFTER))
        if before is None:
            joined = new.withColumn(BEFORE, F.lit(None).cast(new.schema[AFTER].dataType))
        else:
            joined = new.join(before.select(*scope, F.struct(*columns).alias(BEFORE)), list(scope), "left")

        def differ(name: str) -> Column:
            return ~F.col(BEFORE).getField(name).eqNullSafe(F.col(AFTER).getField(name))

        changed = F.col(BEFORE).isNull() | differ(POSITION)
        if self._plan.on_error == "column":
            changed = changed | differ(ERROR)
        return joined.where(changed).select(*scope, BEFORE, AFTER, F.lit(position).cast(kind).alias(POSITION))

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
            view._refresh(batch.up_to, patience_s=PATIENCE_S)

        return follow_ranges(
            self._session(),
            store,
            refresh_batch,
            checkpoint=checkpoint,
            name=name,
            max_events=max_events,
            trigger=trigger,
        )

    def _folded(self, log: Log, base: Version | None, *, saving: bool, few: bool = False) -> DataFrame:
        """The log folded on top of a version. `few`: read only the states of the keys that the log has."""
        rows = log.rows
        if base is not None:
            wanted = (*self._plan.keys, POSITION, STATE, VALID_TO, VALID_FROM_TIME)
            kept = [field for field in self._plan.saved_schema(log.position).fields if field.name in wanted]
            saved = self._table.read(self._session(), StructType(kept), self._table.files(base))
            nothing = {field.name: F.lit(None) for field in self._plan.details}
            if self._plan.history:
                saved = saved.where(F.col(VALID_TO).isNull())
                nothing["recorded_at"] = F.unix_micros(VALID_FROM_TIME)
            if few:
                touched = rows.select(*self._plan.keys)
                saved = saved.join(F.broadcast(touched), list(self._plan.keys), "left_semi")
            states = saved.select(
                *self._plan.keys,
                POSITION,
                F.lit(None).cast("string").alias("type"),
                F.col(STATE).alias("data"),
                *(column.alias(name) for name, column in nothing.items()),
            )
            rows = rows.unionByName(states)
        return Folder(self._plan, log.position, saving).folded(rows, self._partitions)

    def _existing(self) -> list[Version]:
        versions = self._table.versions()
        if not versions:
            raise StoreUnavailable("there is no such view yet, or other code has folded it; refresh it first")
        return versions

    def _end(self, store: Address, base: Version | None, up_to: int | None) -> tuple[int, str]:
        """The position at which this refresh ends, with the digest of its event; refuses another log."""
        with scan_of(store).open() as opened:
            head = opened.head()
            end = head if up_to is None else min(up_to, head)
            if base is not None and (base.position > head or digest_at(opened, base.position) != base.digest):
                raise InvalidInput(
                    "store",
                    f"the view was folded from another log: its event at position {base.position} is not this store's",
                )
            return end, digest_at(opened, end)

    def _needed_store(self) -> Address:
        if self._store is None:
            raise InvalidInput("store", "missing; a refresh reads the log: View(..., store='wallet.db')")
        return self._store

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = SparkSession.getActiveSession() or session()
        return self._spark
