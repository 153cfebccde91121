"""The conditions of recorded appends as questions, and the shapes of their queries.

The *shape* of a boundary is its query without the values of tags: `wallet:w1` and `wallet:w2` are both `wallet:*`. An
application has few shapes; each belongs to one rule of its decisions.

A *question* is one item of a query: did an event after `after` and before `first` match it? Conditions repeat their
items thousands of times, so `matched_items` matches each different item with the events once. `answered` sorts the
matching positions and the questions about an item together; a running maximum gives each question the last matching
position before `first`, which conflicts if it is above `after`. So repeated conditions cost no more than a sort.

Positions are 64-bit integers here, because only engines with such positions record appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice, product
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ... import Query, QueryItem
from ...engine import MAX_ITEMS, RecordedAppend
from ...errors import InvalidInput
from ..basics import reporting
from ..matching import match
from ..scanning import stored_appends

LONGEST: Final = 2**63 - 1
ANY: Final = "*"
EVERYTHING: Final = "everything"

Boundary = Query | Callable[[RecordedAppend], Query | None]

CONDITION: Final = "condition"
UNLESS: Final = "unless"
UNREADABLE: Final = "unreadable"  # the record cannot be decoded
REFUSED: Final = "refused"  # the boundary of `what_if` gives no valid query for this append

# A row for each item of each condition of each append. Only the first item of a condition has boundary and shape.
QUESTIONS: Final = pa.schema(
    [
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("kind", pa.string()),
        ("number", pa.int32()),
        ("after", pa.int64()),
        ("boundary", pa.string()),
        ("shape", pa.string()),
        ("item", pa.string()),
        ("item_shape", pa.string()),
        ("item_types", pa.list_(pa.string())),
    ]
)


def questions_of(appends: DataFrame) -> DataFrame:
    """The conditions of each recorded append. A record that cannot be decoded is a row of kind `UNREADABLE`."""
    return appends.mapInArrow(partial(_questions, asked=_recorded), from_arrow_schema(QUESTIONS))


def supposed_questions(appends: DataFrame, boundary: Boundary) -> DataFrame:
    """The conditions that each recorded decision would have had with that boundary."""
    asked = partial(_supposed, boundary=boundary)
    return appends.mapInArrow(partial(_questions, asked=asked), from_arrow_schema(QUESTIONS))


def answered(pairs: DataFrame, questions: DataFrame) -> DataFrame:
    """The questions with `last_match`, the last matching position below `first`, and how many there are, `matched`.

    `questions` has the columns item (the JSON of a query with one item) and first, and whatever else; `pairs` is what
    `matched_items` gives for them.
    """
    extra = [name for name in questions.columns if name not in ("item", "first")]
    asked = questions.select("item", F.col("first").alias("at"), F.lit(0).alias("order"), *extra)
    found = pairs.select("item", F.col("position").alias("at"), F.lit(1).alias("order"))
    before = Window.partitionBy("item").orderBy("at", "order").rowsBetween(Window.unboundedPreceding, -1)
    match_at = F.when(F.col("order") == 1, F.col("at"))
    return (
        asked.unionByName(found, allowMissingColumns=True)
        .withColumns({"last_match": F.max(match_at).over(before), "matched": F.count(match_at).over(before)})
        .where(F.col("order") == 0)
        .select("item", F.col("at").alias("first"), *extra, "last_match", "matched")
    )


def matched_items(events: DataFrame, questions: DataFrame) -> DataFrame:
    """Each different item of the questions with each event that it matches: item, position, type."""
    items = questions.where("item IS NOT NULL").select(F.col("item").alias("query_id"), F.col("item").alias("query"))
    return match(events, items.distinct()).select(F.col("query_id").alias("item"), "position", "type")


def shape_of(query: Query) -> str:
    """
    >>> shape_of(Query.of(types={"B", "A"}, tags={"wallet:w1"}) | Query.of(tags={"wallet:w2", "vip"}))
    '* [vip wallet:*] or A|B [wallet:*]'
    """
    return " or ".join(sorted({item_shape(item) for item in query.items}))


def item_shape(item: QueryItem) -> str:
    if not item.types and not item.tags:
        return EVERYTHING
    tags = sorted({_tag_shape(tag) for tag in item.tags})
    types = "|".join(sorted(item.types)) or ANY
    return f"{types} [{' '.join(tags)}]" if tags else types


def filled(boundary: Query, append: RecordedAppend) -> Query | None:
    """The boundary with each tag `name:*` replaced by matching tags of the append's conditions; None if none match."""
    named = sorted({tag for each in append.conditions for item in each.fail_if_events_match.items for tag in item.tags})
    made = (filled_item for item in boundary.items for filled_item in _filled_items(item, named))
    items = list(islice(made, MAX_ITEMS + 1))  # patterns in one item multiply; Query refuses more than MAX_ITEMS
    return Query(dict.fromkeys(items)) if items else None


def _filled_items(item: QueryItem, named: Iterable[str]) -> Iterator[QueryItem]:
    choices = [
        [other for other in named if other.startswith(tag[:-1])] if tag.endswith(f":{ANY}") else [tag]
        for tag in sorted(item.tags)
    ]
    for tags in product(*choices):
        yield QueryItem(types=item.types, tags=tags)


def _tag_shape(tag: str) -> str:
    name, colon, _ = tag.partition(":")
    return f"{name}:{ANY}" if colon else tag


def _questions(
    batches: Iterator[pa.RecordBatch], asked: Callable[[RecordedAppend], Iterator[dict[str, Any]]]
) -> Iterator[pa.RecordBatch]:
    """The rows that `asked` gives for each append; in a worker."""
    with reporting():
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for first, last, stored, unless in stored_appends(batch):
                try:
                    append = RecordedAppend(first, last, stored.decode(), None if unless is None else unless.decode())
                    rows.extend(asked(append))
                except (InvalidInput, UnicodeDecodeError) as error:
                    rows.append({"first": first, "last": last, "kind": UNREADABLE, "boundary": str(error)})
            yield pa.RecordBatch.from_pylist(rows, schema=QUESTIONS)


def _recorded(append: RecordedAppend) -> Iterator[dict[str, Any]]:
    for number, condition in enumerate(append.conditions):
        yield from _rows(append, CONDITION, number, condition.after, condition.fail_if_events_match)
    if append.unless is not None:
        yield from _rows(append, UNLESS, 0, 0, append.unless)


def _supposed(append: RecordedAppend, boundary: Boundary) -> Iterator[dict[str, Any]]:
    if not append.conditions:
        return
    try:
        supposed = filled(boundary, append) if isinstance(boundary, Query) else boundary(append)
    except InvalidInput as error:
        yield {"first": append.first, "last": append.last, "kind": REFUSED, "boundary": str(error)}
        return
    if supposed is not None:
        yield from _rows(append, CONDITION, 0, min(condition.after for condition in append.conditions), supposed)


def _rows(append: RecordedAppend, kind: str, number: int, after: int, query: Query) -> list[dict[str, Any]]:
    """A row for each item. Only the first row has the texts of the whole condition, because they are long."""
    common = {
        "first": append.first,
        "last": append.last,
        "kind": kind,
        "number": number,
        "after": min(after, LONGEST),
    }
    rows = [common | _about_item(item) for item in query.items]
    rows[0] |= {"boundary": query.to_json(), "shape": shape_of(query)}
    return rows


@lru_cache(maxsize=100_000)  # conditions repeat their items
def _about_item(item: QueryItem) -> dict[str, Any]:
    return {"item": Query((item,)).to_json(), "item_shape": item_shape(item), "item_types": sorted(item.types)}
