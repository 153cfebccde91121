"""The conditions of recorded appends as questions, and the shapes of their queries.

The *shape* of a boundary is its query without the values of tags: `wallet:w1` and `wallet:w2` are both `wallet:*`. An
application has few shapes; each belongs to one rule of its decisions.

Positions are 64-bit integers here, because only engines with such positions record appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice, product
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from ...errors import InvalidInput
from ...model import MAX_ITEMS, AppendCondition, Query, QueryItem, RecordedAppend
from ..basics import reporting
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
QUESTIONS: Final = (
    "first long, last long, kind string, number int, after long, boundary string, shape string, "
    "item string, item_shape string, item_types array<string>"
)
_QUESTIONS: Final = pa.schema(
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
    return appends.mapInArrow(_recorded_questions, QUESTIONS)


def supposed_questions(appends: DataFrame, boundary: Boundary) -> DataFrame:
    """The conditions that each recorded decision would have had with that boundary."""
    return appends.mapInArrow(partial(_supposed_questions, boundary=boundary), QUESTIONS)


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


def _recorded_questions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[dict[str, Any]] = []
        for first, last, conditions, unless in stored_appends(batch):
            try:
                append = RecordedAppend(first, last, conditions.decode(), None if unless is None else unless.decode())
                for number, condition in enumerate(append.conditions):
                    rows += _rows(append, CONDITION, number, condition.after, condition.fail_if_events_match)
                if append.unless is not None:
                    rows += _rows(append, UNLESS, 0, 0, append.unless)
            except (InvalidInput, UnicodeDecodeError) as error:
                rows.append({"first": first, "last": last, "kind": UNREADABLE, "boundary": str(error)})
        yield pa.RecordBatch.from_pylist(rows, schema=_QUESTIONS)


def _supposed_questions(batches: Iterator[pa.RecordBatch], boundary: Boundary) -> Iterator[pa.RecordBatch]:
    with reporting():
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for first, last, stored, unless in stored_appends(batch):
                try:
                    append = RecordedAppend(first, last, stored.decode(), None if unless is None else unless.decode())
                    conditions = append.conditions
                except (InvalidInput, UnicodeDecodeError) as error:
                    rows.append({"first": first, "last": last, "kind": UNREADABLE, "boundary": str(error)})
                    continue
                if conditions:
                    rows += _supposed_rows(append, conditions, boundary)
            yield pa.RecordBatch.from_pylist(rows, schema=_QUESTIONS)


def _supposed_rows(
    append: RecordedAppend, conditions: tuple[AppendCondition, ...], boundary: Boundary
) -> list[dict[str, Any]]:
    try:
        supposed = filled(boundary, append) if isinstance(boundary, Query) else boundary(append)
    except InvalidInput as error:
        return [{"first": append.first, "last": append.last, "kind": REFUSED, "boundary": str(error)}]
    after = min(condition.after for condition in conditions)
    return [] if supposed is None else _rows(append, CONDITION, 0, after, supposed)


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
