"""The conflict kernel: which events can spoil which decisions.

An event spoils a decision exactly when it matches the decision's query. This module turns
that test into an equality of keys, so that a dict, a database's conflict set or a join can
decide it without knowing what events and queries are.

A *bucket* is a set of tags together with a type, or with ANY. An event writes into every
bucket that it belongs to; a query reads one bucket for each item and type:

    matches(event, query)  <=>  write_buckets(event) and read_targets(query) meet

The equivalence is the theorem `exact` in proofs/. An event with n tags writes 2 * 2^n buckets:
nothing for a few tags in memory, too much to store. Two ways around the power set are proven
as well. When no item names more than k tags, subsets of up to k are enough (`exact_upto`).
And `write_keys` and `read_keys` are a linear cover: they meet whenever the event matches, and
sometimes when it does not, so `matches` must have the last word (`linear_cover`).
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import Final, Protocol, TypeAlias

from .model import Query, QueryItem

ANY: Final = None

Bucket: TypeAlias = tuple[tuple[str, ...], str | None]
Key: TypeAlias = tuple[str, str]

ALL: Final[Key] = ("all", "")


class Classified(Protocol):
    """What the kernel needs to know of an event, stored or not."""

    @property
    def type(self) -> str: ...
    @property
    def tags(self) -> frozenset[str]: ...


def write_buckets(event: Classified, *, upto: int | None = None) -> Iterator[Bucket]:
    """Every bucket that the event belongs to, or those of up to `upto` tags.

    >>> from fencepost import Event
    >>> list(write_buckets(Event("Opened", tags={"wallet:1"})))
    [((), 'Opened'), ((), None), (('wallet:1',), 'Opened'), (('wallet:1',), None)]
    """
    for tags in subsets(sorted(event.tags), upto=upto):
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
    """The definition itself, for one event and one query: no buckets needed."""
    return any((not item.types or event.type in item.types) and item.tags <= event.tags for item in query.items)


def write_keys(event: Classified) -> Iterator[Key]:
    """The linear cover of an event: all, its type, each of its tags."""
    yield ALL
    yield "type", event.type
    for tag in sorted(event.tags):
        yield "tag", tag


def read_keys(item: QueryItem) -> Iterator[Key]:
    """The narrowest keys that every event matching the item must have written.

    One tag is enough, since a matching event has them all.
    """
    if item.tags:
        yield "tag", min(item.tags)
    elif item.types:
        yield from (("type", type_) for type_ in sorted(item.types))
    else:
        yield ALL


def subsets(tags: Iterable[str], *, upto: int | None = None) -> Iterator[tuple[str, ...]]:
    """All subsets, or those of up to `upto`, the empty one first; canonical when the tags are sorted."""
    tags = tuple(tags)
    largest = len(tags) if upto is None else min(upto, len(tags))
    return chain.from_iterable(combinations(tags, size) for size in range(largest + 1))
