"""Typed tables: one DataFrame for each event class, with the event's fields as typed columns.

    tables(spark, "wallet.db", wallet.events)
    spark.sql("SELECT wallet_id, sum(amount) FROM money_deposited GROUP BY wallet_id")

Spark parses `data`, with a schema made from the annotations of the class. Only events of older versions, and classes
with a codec other than JSON, are decoded in Python, because their upgrades and codecs are Python functions.

Invariant: every event of the type has a row. The column `unreadable` holds the data of an event that does not fit its
class; its other fields are null. tests/spark/test_typed.py compares the rows with `Declaration.decode`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from .. import SequencedEvent
from ..decisions import EventUnreadable
from ..decisions.inspection import VERSION, Declaration, alternatives, declaration_of, json_codec
from ..errors import InvalidInput
from .basics import Shipped, Snapshot, Store, position_column, reporting, shipped, tag_values
from .folding import type_of
from .frames import Folder, events, prefix_of

COLUMNS: Final = (
    "type string, tags array<string>, data binary, recorded_at timestamp, id string, metadata map<string,string>"
)
OWN: Final = ("position", "recorded_at", "id", "tags", "metadata", "unreadable")  # columns besides the fields
CORRUPT: Final = "data that is not of the schema"  # with spaces, which no field's name has
PROBLEM: Final = "problem"


def tables(
    spark: SparkSession, store: Store, module: ModuleType | str | Iterable[type], *, lake: Folder | None = None
) -> dict[str, DataFrame]:
    """A DataFrame for each event class of the module, also registered as a temporary view.

    `module` is a module, its name, or event classes. A view's name is that of the event's type in lower case with
    underscores: `money_deposited` for `MoneyDeposited`. All views are one prefix of the log; call `tables` again to
    see newer events. The columns are `position`, `recorded_at`, `id`, the fields of the event, a list for each tag that
    is not a field, `tags`, `metadata`, and `unreadable`. Where a field has one of these names, the store's column has
    the prefix `event_`. `lake` is the folder of a lake of the same log, which Spark reads as far as it goes.
    """
    prefix = prefix_of(spark, store, lake=lake)
    found: dict[str, DataFrame] = {}
    for cls in _classes(module):
        declaration: Declaration[Any] = declaration_of(cls)
        name = view_name(declaration.type)
        if name in found:
            raise InvalidInput("module", f"two types of events have the view name {name!r}; pass event classes instead")
        found[name] = typed(spark, prefix, cls)
        found[name].createOrReplaceTempView(name)
    if not found:
        raise InvalidInput("module", "it has no event classes; declare them with @event")
    return found


def typed(spark: SparkSession, prefix: Snapshot, cls: type) -> DataFrame:
    """The events of one class, a row each."""
    declaration: Declaration[Any] = declaration_of(cls)
    columns = f"{position_column(prefix.address)}, {COLUMNS}"
    stored = events(spark, prefix, columns=columns, types=msgspec.json.encode([declaration.type]).decode())
    decoded = _decoded(stored.withColumn(PROBLEM, F.lit(None).cast("string")), declaration)
    fields = [_Field.of(name, hint, cls) for name, hint in declaration.fields.items()]
    schema = StructType([*(StructField(each.name, each.column) for each in fields), StructField(CORRUPT, StringType())])
    text = F.col("data").cast("string")
    parsed = decoded.withColumn("of", F.from_json(text, schema, {"columnNameOfCorruptRecord": CORRUPT}))
    value = {each.name: F.col("of").getField(each.name) for each in fields}
    fits = F.col(PROBLEM).isNull() & F.col("of").isNotNull() & F.col("of").getField(CORRUPT).isNull()
    for each in fields:
        if each.required:
            fits = fits & value[each.name].isNotNull()
    own = {name: f"event_{name}" if name in declaration.fields else name for name in OWN}
    return parsed.withColumn("fits", fits).select(
        *(F.col(name).alias(own[name]) for name in ("position", "recorded_at", "id")),
        *(F.when(F.col("fits"), each.filled(value[each.name])).alias(each.name) for each in fields),
        *(tag_values(tag).alias(tag) for tag in sorted(declaration.tag_names - set(declaration.fields) - set(OWN))),
        *(F.col(name).alias(own[name]) for name in ("tags", "metadata")),
        F.when(~F.col("fits"), F.coalesce(PROBLEM, text)).alias(own["unreadable"]),
    )


def view_name(type: str) -> str:
    """
    >>> view_name("MoneyDeposited"), view_name("wallet.opened/v2"), view_name("HTTPCalled")
    ('money_deposited', 'wallet_opened_v2', 'http_called')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type)
    return re.sub(r"\W+", "_", words).strip("_").lower() or "events"


@dataclass(frozen=True)
class _Field:
    """A field of an event as a column."""

    name: str
    column: DataType
    required: bool  # the class refuses an event without it
    default: Any = None

    @classmethod
    def of(cls, name: str, hint: Any, event: type) -> _Field:
        column = type_of(hint) or StringType()  # a union of several types, or Any: its JSON as text
        optional = type(None) in alternatives(hint)
        defaults = _defaults(event)
        return cls(name, column, name not in defaults and not optional, None if optional else defaults.get(name))

    def filled(self, value: Column) -> Column:
        """The value, or the default of the class where the stored event has none."""
        simple = isinstance(self.default, (bool, int, float, str))
        return F.coalesce(value, F.lit(self.default).cast(self.column)) if simple else value


def _defaults(event: type) -> dict[str, Any]:
    """The fields that an event may leave out, with their default values; None for one that a function makes."""
    if hasattr(event, "__struct_fields__"):
        return {
            each.name: None if each.default is msgspec.NODEFAULT else each.default
            for each in msgspec.structs.fields(event)
            if not each.required
        }
    if dataclasses.is_dataclass(event):
        given = [each for each in dataclasses.fields(event) if each.default is not dataclasses.MISSING]
        made = [each for each in dataclasses.fields(event) if each.default_factory is not dataclasses.MISSING]
        return {each.name: each.default for each in given} | {each.name: None for each in made}
    fields: dict[str, Any] = getattr(event, "model_fields", {})
    return {
        name: None if field.default_factory else field.default
        for name, field in fields.items()
        if not field.is_required()
    }


def _classes(module: ModuleType | str | Iterable[type]) -> list[type]:
    if isinstance(module, str):
        module = import_module(module)
    if isinstance(module, ModuleType):
        module = [each for each in vars(module).values() if isinstance(each, type)]
        return [
            each for each in dict.fromkeys(module) if getattr(getattr(each, "__event__", None), "cls", None) is each
        ]
    return list(module)


def _decoded(stored: DataFrame, declaration: Declaration[Any]) -> DataFrame:
    """The events with data in JSON of the newest version; `problem` says why an event has none."""
    newest = F.coalesce(F.element_at("metadata", F.lit(VERSION)), F.lit("1")) == str(declaration.version)
    if declaration.codec_factory is json_codec and declaration.version == 1:
        return stored.withColumn(PROBLEM, F.when(~newest, F.lit("written by a newer version of the class")))
    work = partial(_decode, shipped(declaration.cls))
    if declaration.codec_factory is not json_codec:
        return stored.mapInArrow(work, stored.schema)
    return stored.where(newest).unionByName(stored.where(~newest).mapInArrow(work, stored.schema))


def _decode(event: Shipped, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode each event by its class, and encode it again as JSON; in a worker."""
    declaration: Declaration[Any] = declaration_of(event.load())
    with reporting():
        for batch in batches:
            data: list[bytes] = []
            problems: list[str | None] = []
            columns = (batch.column(name).to_pylist() for name in ("position", "type", "data", "metadata"))
            for position, kind, content, metadata in zip(*columns, strict=True):
                stored = SequencedEvent(int(position), kind, frozenset(), content, 0, None, dict(metadata or ()))
                try:
                    data.append(declaration.json(stored))
                    problems.append(None)
                except EventUnreadable as error:
                    data.append(content)
                    problems.append(str(error))
            made = {"data": pa.array(data, pa.binary()), PROBLEM: pa.array(problems, pa.string())}
            arrays = [made.get(name, batch.column(name)) for name in batch.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
