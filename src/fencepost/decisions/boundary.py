"""The boundary of a decision: the union of its projections' boundaries, as one query.

Items that ask for the same tags become one item, with the types of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Query, QueryItem, query_of_items
from .projections import Projection, items_of


def query_of(projections: Sequence[Projection]) -> Query:
    """The query that finds the events of all of them."""
    if len(projections) == 1:
        return query_of_items(items_of(projections[0]))
    return Query(_united([item for projection in projections for item in items_of(projection)]))


def _united(items: Iterable[QueryItem]) -> list[QueryItem]:
    by_tags: dict[frozenset[str], QueryItem] = {}
    for item in items:
        other = by_tags.get(item.tags)
        if other is None or not item.types:
            by_tags[item.tags] = item
        elif other.types and not item.types <= other.types:
            by_tags[item.tags] = QueryItem(types=item.types | other.types, tags=item.tags)
    return list(by_tags.values())
