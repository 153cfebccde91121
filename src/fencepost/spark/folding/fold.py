"""Folds: one row for each key, made by the same projection class that decisions use.

    fold(spark, "wallet.db", Balance, by="wallet_id")

Events are read as rows with keys, shuffled by key and sorted by position. Each worker then goes through its rows once
and passes every event to the projection of its key, as a service would.

A row without a type is a saved state, from which the fold of its key continues: the same code folds a log, and folds
new events into a view. tests/spark/test_folding.py compares it with the fold in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from ... import SequencedEvent
from ...decisions import EventUnreadable, Projection
from ...decisions.inspection import VERSION, Snapshot, encode_state, restore
from ...errors import InvalidInput
from ..basics import reporting
from ..frames import Folder as LakeFolder
from ..scanning import values
from .log import Events, log_of
from .plan import POSITION, UPTO, OnError, Plan, plain_hint
from .states import array_of, conversion

ROWS: Final = 8_192  # of a batch that a worker returns


def fold(
    spark: SparkSession,
    store: Events,
    projection: type[Projection],
    *,
    by: str | Sequence[str],
    after: int = 0,
    up_to: int | None = None,
    keys: Sequence[Any] | None = None,
    on_error: OnError = "fail",
    schema: str | StructType | None = None,
    partitions: int | None = None,
    lake: LakeFolder | None = None,
) -> DataFrame:
    """One row for each key that an event concerns: the key, the state's fields, `position`, `up_to`.

    `position` is that of the last event of the key, `up_to` how far the log was folded. `store` is an
    address, a lake (`lake:<folder>`), a snapshot or a DataFrame of events. `by` names the tag, or the tags, that
    the projection is scoped by; with `keys` only their events are read. `lake` is the folder of a lake of the same
    log, which Spark reads as far as it goes.

    An event that does not fit its class fails the fold, or is skipped (`skip`). With `column` the fold of its key
    ends before that event, and the column `error` says why.
    """
    plan = Plan.of(projection, by, on_error=on_error, schema=schema)
    log = log_of(spark, store, plan, after=after, up_to=up_to, keys=keys, lake=lake)
    folded = Folder(plan, log.position).folded(log.rows, partitions)
    return folded.withColumn(UPTO, F.lit(log.up_to).cast(log.position))


@dataclass(frozen=True)
class Folder:
    """Folds the rows of some keys; in a worker."""

    plan: Plan
    position: DataType
    saving: bool = False  # for a view: only changed keys, with the state to continue from

    @property
    def schema(self) -> StructType:
        """The columns of the rows that this fold returns."""
        return self.plan.saved_schema(self.position) if self.saving else self.plan.folded_schema(self.position)

    def folded(self, rows: DataFrame, partitions: int | None) -> DataFrame:
        """The rows of each key, in one partition and in the order of the log, folded into one row."""
        keys = self.plan.keys
        spread = rows.repartition(*keys) if partitions is None else rows.repartition(partitions, *keys)
        return spread.sortWithinPartitions(*keys, POSITION).mapInArrow(self, self.schema)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            yield from Work(self).run(batches)


class Work:
    """One pass over the rows of some keys, sorted by key and position."""

    def __init__(self, folder: Folder) -> None:
        self._plan = plan = folder.plan
        self._projection: Any = plan.projection.load()
        self._saving = folder.saving
        self._schema = to_arrow_schema(folder.schema, timezone="UTC")
        hints = self._projection.definition.scope_types
        self._converts = [_from_tag(plain_hint(hints[parameter])) for parameter in plan.scope]
        self._names = plan.state.names
        fields = [self._schema.field(name) for name in self._names]
        self._conversions = [conversion(field.type) for field in fields]
        self._done: list[tuple[Any, ...]] = []
        # Of a history: the newest row of the current key, without what follows the state, and the time of its event.
        self._newest: tuple[list[Any], Any] | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        definition = self._projection.definition
        by_type, every = definition.by_type, definition.every
        stops = self._plan.on_error == "column"
        skips = self._plan.on_error == "skip"
        current: tuple[str, ...] | None = None
        saved: list[tuple[int, bytes]] = []
        saved_at: Any = None
        keeps_history = self._plan.history and self._saving
        projection: Any = None  # created for the first event: a refresh changes few of the saved states
        error: str | None = None
        for batch in batches:
            for key, position, kind, data, stored, at in self._rows(batch):
                if key != current:
                    self._close(current, saved, projection, error)
                    if len(self._done) >= ROWS:
                        yield self._batch()
                    current, saved, projection, error = key, [], None, None
                if kind is None:
                    saved.append((position, data))
                    saved_at = at
                    continue
                if projection is None:
                    projection, error = self._begin(key, saved)
                    if keeps_history and saved:
                        self._newest = self._described(projection, None), saved_at
                if error is not None:
                    continue
                try:
                    by_type.get(kind, every).handle(projection, stored)
                except EventUnreadable as unreadable:
                    if stops:
                        error = str(unreadable)
                    elif not skips:
                        raise
                    continue
                projection.position = position
                if keeps_history:
                    self._add_change(key, projection, at)
                    if len(self._done) >= ROWS:
                        yield self._batch()
        self._close(current, saved, projection, error)
        if self._done:
            yield self._batch()

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """(key, position, type, data, stored event, time if handlers take stored events) of each row."""
        keys = zip(*[values(batch.column(name)) for name in self._plan.keys], strict=True)
        positions, kinds, data = (values(batch.column(name)) for name in (POSITION, "type", "data"))
        if self._plan.whole:
            tags, times, ids, metadata = (batch.column(field.name).to_pylist() for field in self._plan.details)
            rows = zip(keys, positions, kinds, data, tags, times, ids, metadata, strict=True)
            for key, position, kind, content, of, at, id, given in rows:
                stored = None
                if kind is not None:
                    made = None if id is None else UUID(id)
                    stored = SequencedEvent(position, kind, frozenset(of), content, at, made, dict(given))
                yield key, position, kind, content, stored, at
            return
        versions = values(batch.column("version"))
        for key, position, kind, content, version in zip(keys, positions, kinds, data, versions, strict=True):
            if kind is None:
                yield key, position, None, content, None, None
                continue
            # Handlers see only its data.
            metadata = {} if version is None else {VERSION: version}
            yield key, position, kind, content, SequencedEvent(position, kind, "[]", content, 0, None, metadata), None

    def _begin(self, key: tuple[str, ...], saved: Sequence[tuple[int, bytes]]) -> tuple[Any, str | None]:
        """The projection as it was saved, or new; and the error at which its fold ended."""
        made = []
        for convert, text, tag in zip(self._converts, key, self._plan.tags, strict=True):
            try:
                made.append(text if convert is None else convert(text))
            except msgspec.ValidationError as problem:
                raise InvalidInput(f"tag {f'{tag}:{text}'!r:.80}", f"it does not fit the scope: {problem}") from None
        projection: Any = self._projection(*made)
        error: str | None = None
        for position, data in saved:
            ended_by = Saved.restored(projection, position, data)
            error = error or ended_by
        return projection, error

    def _close(self, key: Any, saved: Sequence[tuple[int, bytes]], projection: Any, error: str | None) -> None:
        """Add the row of a key, unless the pass is for a view and the key has not changed."""
        if key is None or (projection is None and self._saving):
            return
        if projection is None:
            projection, error = self._begin(key, saved)
        state = msgspec.json.encode(Saved(encode_state(projection), error)) if self._saving else None
        if self._plan.history and self._saving:
            if self._newest is not None:  # None if every event of a new key was skipped
                self._done.append(self._historic(key, state, None, None))
                self._newest = None
            return
        row = self._described(projection, error)
        if self._saving:
            row += [*key, state]
        self._done.append(tuple(row))

    def _add_change(self, key: Any, projection: Any, at: Any) -> None:
        """End the newest row of the key at the event that the projection has just handled, and begin the next one."""
        if self._newest is not None:
            self._done.append(self._historic(key, None, projection.position, at))
        self._newest = self._described(projection, None), at

    def _historic(self, key: Any, state: bytes | None, valid_to: int | None, ended: Any) -> tuple[Any, ...]:
        """The newest row as a history keeps it. Only the row that has not ended has a state to continue from."""
        assert self._newest is not None
        row, at = self._newest
        return (*row, *key, state, row[-1], valid_to, at, ended)  # a row ends with its position

    def _described(self, projection: Any, error: str | None) -> list[Any]:
        """The columns of the fold."""
        return [*(getattr(projection, parameter) for parameter in self._plan.scope), *self._row(projection, error)]

    def _row(self, projection: Any, error: str | None) -> list[Any]:
        """The values of the columns after the key. Conversions copy lists and maps, which handlers may change."""
        row = [convert(getattr(projection, name)) for name, convert in zip(self._names, self._conversions, strict=True)]
        row.append(projection.position)
        if self._plan.on_error == "column":
            row.append(error)
        return row

    def _batch(self) -> pa.RecordBatch:
        columns = list(zip(*self._done, strict=True))
        rows, self._done = self._done, []

        def whose(index: int) -> str:
            return " ".join(f"{name} {value!r}" for name, value in zip(self._plan.scope, rows[index], strict=False))

        width = len(self._plan.scope)
        converted = [
            [conversion(field.type)(value) for value in column] if index < width else column
            for index, (column, field) in enumerate(zip(columns, self._schema, strict=True))
        ]
        arrays = [array_of(column, field, whose) for column, field in zip(converted, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class Saved(msgspec.Struct):
    """The state of a key that a view keeps, to continue from."""

    state: bytes
    error: str | None = None

    @staticmethod
    def restored(projection: Projection, position: int, data: bytes) -> str | None:
        """Put the saved state into the projection; returns the error at which its fold ended, if any."""
        saved = msgspec.json.decode(data, type=Saved)
        restore(projection, Snapshot(position, b"", saved.state))
        return saved.error


def _from_tag(hint: Any) -> Callable[[str], Any] | None:
    if hint is str:
        return None
    return lambda text: msgspec.convert(text, hint, strict=False)
