"""Every pair of many queries and many events, by an equi-join.

Testing each query against each event is a cross join: 10,000 queries and a million events are ten billion tests. The
kernel makes it a join on keys: an event that matches an item has each of the item's tags, so any one of them can be
the key; an item without tags is joined on its types, or on ALL. Each pair that the join finds is then tested exactly.
tests/spark/test_matching.py compares the result with `buckets.matches`.

The key of an item is its tag that is rarest in a sample of the events: a tag that every event has would make it a
cross join again. Any choice is right; a bad one is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from .. import AppendCondition, Query, QueryItem
from ..errors import InvalidInput
from .basics import reporting

SAMPLE_EVENTS: Final = 10_000
BROADCAST_ITEMS: Final = 200_000  # more are left to Spark to shuffle

# How the keys of each kind begin. A tag is its own key; no tag holds NUL, so no tag equals a type's key.
TAG: Final = ""
TYPE: Final = "\0type:"
ALL: Final = "\0all"

Queries: TypeAlias = DataFrame | Mapping[str, Query | AppendCondition]

ITEMS: Final = pa.schema(
    [
        ("query_id", pa.string()),
        ("item", pa.int32()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("item_types", pa.list_(pa.string())),
        ("item_tags", pa.list_(pa.string())),
        ("item_after", pa.decimal128(38, 0)),
        ("item_up_to", pa.decimal128(38, 0)),
    ]
)
TAKEN: Final = ("query_id", "key", "item_types", "item_tags", "item_after", "item_up_to")


def match(events: DataFrame, queries: Queries) -> DataFrame:
    """Each query together with each event that it matches: `query_id`, then the events' columns.

    `events` needs the columns position, type and tags. `queries` is a mapping from a name to a
    `Query`, or to an `AppendCondition` for its query and its `after`; or a DataFrame with the columns
    query_id and query (as `Query.to_json` writes it) and, if wanted, after and up_to.
    """
    for name in ("position", "type", "tags"):
        if name not in events.columns:
            raise InvalidInput("events", f"the column {name!r} is missing; matching needs it")
    for name in events.columns:
        if name.lower() in TAKEN:
            raise InvalidInput("events", f"the join has a column {name!r} of its own; rename this one")
    items, shapes = _prepared(events, queries)
    found = (
        events.withColumn("key", _keys(set(shapes)))
        .join(items, "key")
        .where(_exactly())
        .select("query_id", *[events[name] for name in events.columns])
    )
    # An event that several items of a query match is still one pair.
    return found.dropDuplicates(["query_id", "position"]) if any(shapes.values()) else found


def _prepared(events: DataFrame, queries: Queries) -> tuple[DataFrame, dict[str, int]]:
    """The items with their keys; and which kinds of keys there are, with the highest number of an item among them."""
    spark = events.sparkSession
    common = _common_tags(events)
    few = _from_mapping(queries) if isinstance(queries, Mapping) else _collected(_checked(queries))
    if few is not None:
        items = pa.Table.from_batches([_items_of(few, common)])
        shapes: dict[str, int] = {}
        for kind, number in zip(items["kind"].to_pylist(), items["item"].to_pylist(), strict=True):
            shapes[kind] = max(shapes.get(kind, 0), number)
        return F.broadcast(spark.createDataFrame(items).drop("kind")), shapes
    assert isinstance(queries, DataFrame)
    spread = _checked(queries).mapInArrow(partial(_items, common=common), from_arrow_schema(ITEMS))
    counted = spread.groupBy("kind").agg(F.max("item").alias("last")).collect()
    return spread.drop("kind"), {row["kind"]: row["last"] for row in counted}


def _keys(kinds: set[str]) -> Column:
    """One row for each key of an event that any item could have chosen."""
    rest = [F.concat(F.lit(TYPE), F.col("type"))] if TYPE in kinds else []
    rest += [F.lit(ALL)] if ALL in kinds else []
    if TAG not in kinds:
        return F.explode(F.array(*rest))
    return F.explode(F.concat("tags", F.array(*rest)) if rest else F.col("tags"))


def _exactly() -> Column:
    """`buckets.matches` for the one item of the row, and the range of its query."""
    any_type = F.size("item_types") == 0
    all_tags = F.size(F.array_except("item_tags", "tags")) == 0
    return (
        (any_type | F.array_contains(F.col("item_types"), F.col("type")))
        & all_tags
        & (F.col("item_after").isNull() | (F.col("position") > F.col("item_after")))
        & (F.col("item_up_to").isNull() | (F.col("position") <= F.col("item_up_to")))
    )


def _common_tags(events: DataFrame) -> dict[str, int]:
    """How often tags occur in a sample of the events; a tag that is missing here is rare."""
    sample = events.select("tags").limit(SAMPLE_EVENTS).select(F.explode("tags").alias("tag"))
    counted = sample.groupBy("tag").count().where(f"count > {SAMPLE_EVENTS // 1000}").collect()
    return {row["tag"]: row["count"] for row in counted}


def _items(batches: Iterator[pa.RecordBatch], common: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """The items of the queries; in a worker, for more queries than the driver should hold."""
    with reporting():
        for batch in batches:
            yield _items_of(batch.to_pylist(), common)


def _items_of(queries: Iterable[Mapping[str, Any]], common: Mapping[str, int]) -> pa.RecordBatch:
    """The items of the queries, a row for each key that one has."""
    rows: list[dict[str, Any]] = []
    for given in queries:
        if given["query"] is None:
            raise InvalidInput(f"query {given['query_id']!r}", "it is null")
        try:
            query = Query.from_json(given["query"])
        except InvalidInput as error:
            raise InvalidInput(f"query {given['query_id']!r}, {error.field}", error.problem) from None
        for number, item in enumerate(query.items):
            for kind, key in _keys_of(item, common):
                rows.append(
                    {
                        "query_id": given["query_id"],
                        "item": number,
                        "kind": kind,
                        "key": key,
                        "item_types": sorted(item.types),
                        "item_tags": sorted(item.tags),
                        "item_after": given["after"],
                        "item_up_to": given["up_to"],
                    }
                )
    return pa.RecordBatch.from_pylist(rows, schema=ITEMS)


def _keys_of(item: QueryItem, common: Mapping[str, int]) -> list[tuple[str, str]]:
    """`buckets.read_keys`, with the rarest tag as the key."""
    if item.tags:
        return [(TAG, min(item.tags, key=lambda tag: (common.get(tag, 0), tag)))]
    if item.types:
        return [(TYPE, TYPE + type) for type in sorted(item.types)]
    return [(ALL, ALL)]


def _checked(queries: DataFrame) -> DataFrame:
    for name in ("query_id", "query"):
        if name not in queries.columns:
            raise InvalidInput("queries", f"the column {name!r} is missing; a query has a name and a JSON text")
    after, up_to = (
        F.col(name).cast("decimal(38,0)") if name in queries.columns else F.lit(None).cast("decimal(38,0)")
        for name in ("after", "up_to")
    )
    return queries.select(
        F.col("query_id").cast("string"), F.col("query").cast("string"), after.alias("after"), up_to.alias("up_to")
    )


def _collected(queries: DataFrame) -> list[Mapping[str, Any]] | None:
    """The queries on the driver, None when they are too many."""
    taken = queries.limit(BROADCAST_ITEMS + 1).collect()
    return None if len(taken) > BROADCAST_ITEMS else [row.asDict() for row in taken]


def _from_mapping(queries: Mapping[str, Query | AppendCondition]) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for name, given in queries.items():
        if not isinstance(given, (Query, AppendCondition)):
            raise InvalidInput(f"queries[{name!r}]", f"a Query is needed, not {type(given).__name__}")
        query, after = (given, None) if isinstance(given, Query) else (given.fail_if_events_match, given.after)
        rows.append({"query_id": name, "query": query.to_json(), "after": after, "up_to": None})
    return rows
