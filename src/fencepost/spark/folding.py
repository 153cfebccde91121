"""Folds: one row for each key, made by the same projection class that decisions use.

    fold(spark, "wallet.db", Balance, by="wallet_id")

Events are shuffled by key and sorted by position; each worker then goes through its rows once and
hands every event to the projection of its key, as a service would. Only what the handlers need is
shuffled: without a handler that takes the stored event, that is data and version.

A row without a type is a saved state, which its key begins with: so what folds a log also folds
what is new into what was folded before. test_folding.py holds it to the in-process fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from ..decisions import DefinitionError, EventUnreadable, Projection
from ..decisions.boundary import query_of
from ..decisions.hints import alternatives
from ..decisions.snapshots import Snapshot, encode_state, restore
from ..decisions.upcasting import VERSION
from ..errors import InvalidInput
from ..model import Query, SequencedEvent, checked_position
from .columns import WIDE
from .options import absolute
from .reporting import reporting
from .scanning import scan_of
from .shipping import Shipped, shipped
from .source import events as events_of_store
from .states import array_of, conversion, state_schema, type_of

OnError: TypeAlias = Literal["fail", "skip", "column"]
Store: TypeAlias = str | DataFrame

ROWS: Final = 8_192  # of a batch that a worker gives back
POSITION: Final = "position"
UPTO: Final = "upto"
ERROR: Final = "error"
STATE: Final = "state"

# What a handler can see of an event only if it takes the stored one.
WHOLE: Final = "tags array<string>, recorded_at timestamp, id string, metadata map<string,string>"
NEEDED: Final = ("position", "type", "tags", "data", "metadata")


def fold(
    spark: SparkSession,
    store: Store,
    projection: type[Projection],
    *,
    by: str | Sequence[str],
    after: int = 0,
    upto: int | None = None,
    keys: Sequence[Any] | None = None,
    on_error: OnError = "fail",
    schema: str | StructType | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """One row for each key that an event concerns: the key, the state's fields, `position`, `upto`.

    `position` is that of the last event of the key, `upto` how far the log was folded. `store` is an
    address, a lake (`lake:<folder>`) or a DataFrame of events. `by` names the tag, or the tags, that
    the projection is scoped by; with `keys` only their events are read.

    An event that does not fit its class fails the fold, or is left out (`skip`); with `column` the
    fold of its key ends before it, and the column `error` says why.
    """
    plan = Plan.of(projection, by, on_error=on_error, schema=schema)
    log = log_of(spark, store, plan, after=after, upto=upto, keys=keys)
    folded = grouped(log.rows, plan, partitions).mapInArrow(Folder(plan, log.wide), plan.folded_schema(log.wide))
    return folded.withColumn(UPTO, F.lit(log.upto).cast(plan.position_type(log.wide)))


@dataclass(frozen=True)
class Plan:
    """A fold before it has a log: the class, its keys, its columns; travels to the workers."""

    projection: Shipped
    scope: tuple[str, ...]  # the parameters, which are also the names of the key's columns
    tags: tuple[str, ...]  # the names of their tags
    key_types: tuple[DataType, ...]
    state: StructType
    on_error: OnError
    whole: bool  # handlers take the stored event

    @classmethod
    def of(
        cls,
        projection: type[Projection],
        by: str | Sequence[str],
        *,
        on_error: OnError = "fail",
        schema: str | StructType | None = None,
    ) -> Plan:
        if on_error not in get_args(OnError):
            raise InvalidInput("on_error", f"one of {', '.join(get_args(OnError))} is needed, not {on_error!r:.80}")
        reference = shipped(projection)
        _check_scope(projection, [by] if isinstance(by, str) else list(by))
        definition = projection.definition
        state = state_schema(projection, schema)
        taken = {*definition.scope, POSITION, UPTO, STATE, *([ERROR] if on_error == "column" else [])}
        for field in state.fields:
            if field.name in taken:
                raise InvalidInput(
                    f"column {field.name!r}", "it is a column of every fold; name the state's columns with schema="
                )
        return cls(
            projection=reference,
            scope=tuple(definition.scope),
            tags=tuple(definition.scope.values()),
            key_types=tuple(_key_type(projection, parameter) for parameter in definition.scope),
            state=state,
            on_error=on_error,
            whole=any(handler.takes_stored or not handler.declarations for handler in definition.handlers),
        )

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of the shuffled rows that hold the key, as it stands in the tags."""
        return tuple(f"key_{parameter}" for parameter in self.scope)

    @staticmethod
    def position_type(wide: bool) -> DataType:
        return WIDE if wide else LongType()

    def folded_schema(self, wide: bool) -> StructType:
        keys = [StructField(name, type) for name, type in zip(self.scope, self.key_types, strict=True)]
        errors = [StructField(ERROR, StringType())] if self.on_error == "column" else []
        return StructType([*keys, *self.state.fields, StructField(POSITION, self.position_type(wide)), *errors])

    def saved_schema(self, wide: bool) -> StructType:
        """What a view keeps: the columns, the key as it stands in the tags, and the state to go on from."""
        keys = [StructField(name, StringType()) for name in self.keys]
        return StructType([*self.folded_schema(wide).fields, *keys, StructField(STATE, BinaryType())])


def _check_scope(projection: type[Projection], by: Sequence[str]) -> None:
    definition = projection.definition
    name = projection.__qualname__
    if not definition.handlers:
        raise DefinitionError(f"{name} handles no event; give it a method with @on")
    if not definition.scope:
        raise DefinitionError(f"{name} is scoped by no tag, so there is one of it: use fencepost.decisions.project")
    known = set(definition.scope) | set(definition.scope.values())
    for given in by:
        if given not in known:
            raise InvalidInput("by", f"{name} is scoped by {', '.join(definition.scope)}, not by {given!r}")
    missing = [parameter for parameter, tag in definition.scope.items() if parameter not in by and tag not in by]
    if missing:
        raise InvalidInput("by", f"{name} is scoped by {', '.join(missing)} as well: by={list(definition.scope)}")
    for type, bound in [
        *definition.by_type.items(),
        *([("every other", definition.every)] if definition.every else []),
    ]:
        assert bound is not None
        if bound.scope != tuple(definition.scope):
            raise DefinitionError(
                f"{name}: {type!r} is handled in the scope {bound.scope}, so it does not name the instances that it "
                "concerns, and no key can be told from it"
            )


def _key_type(projection: type[Projection], parameter: str) -> DataType:
    type = type_of(_plain_hint(projection.definition.scope_types[parameter]))
    if type is None:
        raise DefinitionError(f"{projection.__qualname__}.{parameter}: no column type follows from its annotation")
    return type


def _plain_hint(hint: Any) -> Any:
    """`Annotated[int, tag("n")] | None` is an int here."""
    (member,) = [member for member in alternatives(hint) if member is not type(None)] or [str]
    return _plain_hint(get_args(member)[0]) if get_origin(member) is Annotated else member


@dataclass(frozen=True)
class Log:
    """The events to fold, as rows with keys: those with after < position <= upto."""

    rows: DataFrame
    upto: int
    wide: bool


def log_of(
    spark: SparkSession,
    store: Store,
    plan: Plan,
    *,
    after: int = 0,
    upto: int | None = None,
    keys: Sequence[Any] | None = None,
) -> Log:
    checked_position(after, "after")
    if upto is not None:
        checked_position(upto, "upto")
    definition = plan.projection.load().definition
    if isinstance(store, DataFrame):
        frame, end = _of_frame(store, plan, after, upto)
        wide = frame.schema[POSITION].dataType == WIDE
    else:
        wide = store.startswith("fdb:")
        end = head_of(store) if upto is None else min(upto, head_of(store))
        # A frame that is used in one way alone, which is what taking Spark's filters asks for.
        frame = events_of_store(
            spark,
            store,
            after=after,
            upto=end,
            query=_query(plan.projection.load(), keys),
            columns=_columns(plan, store),
            pushFilters="true",
        )
    if definition.every is None:
        frame = frame.where(F.col("type").isin(sorted(definition.types)))
    return Log(_keyed(frame, plan, keys), end, wide)


def no_rows(spark: SparkSession, plan: Plan, wide: bool) -> DataFrame:
    """What `log_of` gives for a log without events."""
    keys = ", ".join(f"`{name}` string" for name in plan.keys)
    position = plan.position_type(wide).simpleString()
    rest = WHOLE.replace("timestamp", "long") if plan.whole else "version string"
    return spark.createDataFrame([], f"{keys}, position {position}, type string, data binary, {rest}")


def head_of(store: str) -> int:
    with scan_of(absolute(store)).open() as opened:
        return opened.head()


def _columns(plan: Plan, store: str) -> str:
    position = "decimal(38,0)" if store.startswith("fdb:") else "long"
    rest = WHOLE if plan.whole else "tags array<string>, metadata map<string,string>"
    return f"position {position}, type string, data binary, {rest}"


def _of_frame(frame: DataFrame, plan: Plan, after: int, upto: int | None) -> tuple[DataFrame, int]:
    for name in (*NEEDED, *(("recorded_at", "id") if plan.whole else ())):
        if name not in frame.columns:
            raise InvalidInput("store", f"the column {name!r} is missing; events are folded with it")
    within = frame.where(F.col(POSITION) > F.lit(after))
    if upto is not None:
        within = within.where(F.col(POSITION) <= F.lit(upto))
    if upto is None:
        found = within.agg(F.max(POSITION)).collect()[0][0]
        upto = after if found is None else int(found)
    return within.withColumn("data", F.col("data").cast("binary")), upto


def _query(projection: type[Projection], keys: Sequence[Any] | None) -> Query | None:
    """With keys, exactly their events: the store finds them by its index."""
    if keys is None:
        return None
    if isinstance(keys, str) or not keys:
        raise InvalidInput("keys", "a list of at least 1 key is needed")
    instances = [projection(*(key if isinstance(key, tuple) else (key,))) for key in keys]
    return query_of(instances)


def _keyed(frame: DataFrame, plan: Plan, keys: Sequence[Any] | None) -> DataFrame:
    """A row for each key that the event concerns, with what its handler needs."""
    for column, tag in zip(plan.keys, plan.tags, strict=True):
        prefix = f"{tag}:"
        own = F.filter("tags", lambda each: F.startswith(each, F.lit(prefix)))  # noqa: B023
        values = F.transform(own, lambda each: F.substring(each, len(prefix) + 1, 2**31 - 1))  # noqa: B023
        frame = frame.withColumn(column, F.explode(values))
    if keys is not None:
        wanted = {_tag_values(key) for key in keys}
        chosen = F.struct(*plan.keys)
        frame = frame.where(chosen.isin([F.struct(*map(F.lit, values)) for values in sorted(wanted)]))
    common = [*plan.keys, POSITION, "type", "data"]
    if plan.whole:
        return frame.select(*common, "tags", F.unix_micros("recorded_at").alias("recorded_at"), "id", "metadata")
    return frame.select(*common, F.element_at("metadata", F.lit(VERSION)).alias("version"))


def _tag_values(key: Any) -> tuple[str, ...]:
    from ..decisions.tags import tag_text

    return tuple(tag_text("", value)[1:] for value in (key if isinstance(key, tuple) else (key,)))


def grouped(rows: DataFrame, plan: Plan, partitions: int | None) -> DataFrame:
    """Each key's rows together and in the order of the log."""
    spread = rows.repartition(*plan.keys) if partitions is None else rows.repartition(partitions, *plan.keys)
    return spread.sortWithinPartitions(*plan.keys, POSITION)


@dataclass(frozen=True)
class Folder:
    """What runs in a worker, over the rows of its keys."""

    plan: Plan
    wide: bool
    saving: bool = False  # for a view: only what has changed, with the state to go on from

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reporting():
            yield from Work(self.plan, self.wide, self.saving).run(batches)


class Work:
    """One pass over the rows of some keys, which come one after the other."""

    def __init__(self, plan: Plan, wide: bool, saving: bool) -> None:
        self._plan = plan
        self._projection: Any = plan.projection.load()
        self._saving = saving
        schema = plan.saved_schema(wide) if saving else plan.folded_schema(wide)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        hints = self._projection.definition.scope_types
        self._converts = [_from_tag(_plain_hint(hints[parameter])) for parameter in plan.scope]
        self._names = plan.state.names
        fields = [self._schema.field(name) for name in self._names]
        self._conversions = [conversion(field.type) for field in fields]
        self._done: list[tuple[Any, ...]] = []

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        definition = self._projection.definition
        by_type, every = definition.by_type, definition.every
        stops = self._plan.on_error == "column"
        skips = self._plan.on_error == "skip"
        current: tuple[str, ...] | None = None
        projection: Any = None
        error: str | None = None
        changed = False
        for batch in batches:
            for key, position, kind, data, stored in self._rows(batch):
                if key != current:
                    if projection is not None and (changed or not self._saving):
                        self._finish(current, projection, error)
                    if len(self._done) >= ROWS:
                        yield self._batch()
                    current, error, changed = key, None, False
                    projection = self._begin(key)
                if kind is None:
                    error = self._resume(projection, position, data)
                    continue
                if error is not None:
                    continue
                changed = True
                try:
                    by_type.get(kind, every).handle(projection, stored)
                except EventUnreadable as unreadable:
                    if stops:
                        error = str(unreadable)
                    elif not skips:
                        raise
                    continue
                except Exception as bug:
                    bug.add_note(f"This happened in {definition.name}, with event {kind!r} at position {position}.")
                    raise
                projection.position = position
        if projection is not None and (changed or not self._saving):
            self._finish(current, projection, error)
        if self._done:
            yield self._batch()

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """(key, position, type, data, stored event) of each row."""
        width = len(self._plan.keys)
        keys = zip(*[values(batch.column(index)) for index in range(width)], strict=True)
        positions, kinds, data = (values(batch.column(width + index)) for index in range(3))
        if self._plan.whole:
            tags, times, ids, metadata = (batch.column(width + 3 + index).to_pylist() for index in range(4))
            for row in zip(keys, positions, kinds, data, tags, times, ids, metadata, strict=True):
                yield *row[:4], None if row[2] is None else _stored(*row[1:])
            return
        versions = values(batch.column(width + 3))
        for key, position, kind, content, version in zip(keys, positions, kinds, data, versions, strict=True):
            # No handler sees more of it than its data.
            metadata = {} if version is None else {VERSION: version}
            yield key, position, kind, content, SequencedEvent(position, kind, "[]", content, 0, None, metadata)

    def _begin(self, key: tuple[str, ...]) -> Any:
        made = []
        for convert, text, tag in zip(self._converts, key, self._plan.tags, strict=True):
            try:
                made.append(text if convert is None else convert(text))
            except msgspec.ValidationError as error:
                raise InvalidInput(f"tag {f'{tag}:{text}'!r:.80}", f"it does not fit the scope: {error}") from None
        return self._projection(*made)

    def _resume(self, projection: Any, position: int, state: bytes) -> str | None:
        saved = msgspec.json.decode(state, type=Saved)
        restore(projection, Snapshot(position, b"", bytes(saved.state)))
        return saved.error

    def _finish(self, key: Any, projection: Any, error: str | None) -> None:
        row = [getattr(projection, parameter) for parameter in self._plan.scope]
        row += [
            convert(getattr(projection, name)) for name, convert in zip(self._names, self._conversions, strict=True)
        ]
        row.append(projection.position)
        if self._plan.on_error == "column":
            row.append(error)
        if self._saving:
            row += [*key, msgspec.json.encode(Saved(msgspec.Raw(encode_state(projection)), error))]
        self._done.append(tuple(row))

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
    """What a view keeps of a key, to go on from."""

    state: msgspec.Raw
    error: str | None = None


def _from_tag(hint: Any) -> Callable[[str], Any] | None:
    if hint is str:
        return None
    return lambda text: msgspec.convert(text, hint, strict=False)


def _stored(
    position: int,
    kind: str,
    data: bytes,
    tags: Sequence[str],
    recorded_at: int,
    id: str | None,
    metadata: Sequence[tuple[str, str]] | Mapping[str, str],
) -> SequencedEvent:
    made = None if id is None else UUID(id)
    return SequencedEvent(position, kind, frozenset(tags), data, recorded_at, made, dict(metadata))


def values(column: pa.Array) -> list[Any]:
    """As Python values, ten times as fast as Arrow's own way, which makes an object of its own of each first."""
    if pa.types.is_decimal(column.type):
        return [None if value is None else int(value) for value in column.to_pylist()]
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
