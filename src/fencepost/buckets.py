"""The conflict kernel: which events conflict with which decisions.

An event conflicts with a decision exactly when it matches the decision's query. This module
turns that test into an equality of keys. So a dict, a conflict set of a database or a join can
decide it without knowledge of events and queries.

A *bucket* is a set of tags together with a type, or with ANY. An event writes into every
bucket that it belongs to. A query reads one bucket for each item and type:

    matches(event, query)  <=>  write_buckets(event) and read_targets(query) have a common bucket

The equivalence is the theorem `exact` in proofs/. An event with n tags writes 2 * 2^n buckets.
That is cheap in memory for a few tags, and too much to store. Two ways to avoid it are proven as
well. When no item names more than k tags, subsets of up to k tags are enough (`exact_up_to`). And
`write_keys` and `read_keys` are a linear cover (`linear_cover`): they have a common key whenever
the event matches, and sometimes when it does not, so `matches` must confirm each hit.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import Final, TypeAlias

from .model import Event, Query, QueryItem, SequencedEvent

ANY: Final = None

Bucket: TypeAlias = tuple[tuple[str, ...], str | None]
Key: TypeAlias = tuple[str, str]

ALL: Final[Key] = ("all", "")


Classified: TypeAlias = Event | SequencedEvent
"""An event, of which the kernel uses the type and the tags."""


def write_buckets(event: Classified, *, up_to: int | None = None) -> Iterator[Bucket]:
    """Every bucket that the event belongs to, or those of up to `up_to` tags.

    >>> from fencepost import Event
    >>> list(write_buckets(Event("Opened", tags={"wallet:1"})))
    [((), 'Opened'), ((), None), (('wallet:1',), 'Opened'), (('wallet:1',), None)]
    """
    for tags in subsets(sorted(event.tags), up_to=up_to):
        yield tags, event.type
        yield tags, ANY


def read_targets(query: Query) -> Iterator[Bucket]:
    """The buckets that the query reads; an event in one of them matches it.

    >>> list(read_targets(Query.of(types={"Opened", "Closed"}, tags={"wallet:1"})))
    [(('wallet:1',), 'Closed'), (('wallet:1',), 'Opened')]
    """
    for item in query.items:
        tags = tuple(sorted(item.tags))
        for type_ in sorted(item.types) or (ANY,):
            yield tags, type_


def matches(event: Classified, query: Query) -> bool:
    """The definition of matching, for one event and one query, without buckets."""
    return any(
        (not item.types or event.type in item.types)
        and (not item.tags or item.tags <= event.tags)  # tags may be in stored form, and decoding them takes time
        for item in query.items
    )


def write_keys(event: Classified) -> Iterator[Key]:
    """The keys of an event in the linear cover: ALL, its type, and each of its tags."""
    yield ALL
    yield "type", event.type
    for tag in sorted(event.tags):
        yield "tag", tag


def read_keys(item: QueryItem) -> Iterator[Key]:
    """The keys of an item in the linear cover. Every event that matches the item has written one of them.

    One tag is enough, since a matching event has all tags of the item.
    """
    if item.tags:
        yield "tag", min(item.tags)
    elif item.types:
        yield from (("type", type_) for type_ in sorted(item.types))
    else:
        yield ALL


def subsets(tags: Iterable[str], *, up_to: int | None = None) -> Iterator[tuple[str, ...]]:
    """All subsets, or those of at most `up_to` tags, the empty one first. Each keeps the order of the tags."""
    tags = tuple(tags)
    largest = len(tags) if up_to is None else min(up_to, len(tags))
    return chain.from_iterable(combinations(tags, size) for size in range(largest + 1))
