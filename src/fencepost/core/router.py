"""Which subscribers an event goes to, found by bucket.

Subscribers are stored under the buckets that their queries read. `route` looks up the buckets that an event writes.
The cost of that does not depend on the number of subscribers. By the theorem `exact_up_to`, it is enough to look up
subsets of tags of the sizes that the queries name. If an event has so many tags that there are more such subsets than
buckets in use, `route` compares the event with each bucket in use instead. tests/unit/test_routing.py holds both ways
against the definition of matching.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb
from typing import Generic, TypeVar

from ..buckets import ANY, Bucket, Classified, read_targets
from ..model import Query

Subscriber = TypeVar("Subscriber")


class Router(Generic[Subscriber]):
    """Maps queries to subscribers."""

    def __init__(self) -> None:
        self._targets: dict[Bucket, set[Subscriber]] = {}
        self._sizes: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._targets)

    def add(self, query: Query, subscriber: Subscriber) -> None:
        for target in set(read_targets(query)):
            self._targets.setdefault(target, set()).add(subscriber)
            self._sizes[len(target[0])] += 1

    def remove(self, query: Query, subscriber: Subscriber) -> None:
        for target in set(read_targets(query)):
            subscribers = self._targets[target]
            subscribers.remove(subscriber)
            if not subscribers:
                del self._targets[target]
            self._sizes -= Counter([len(target[0])])  # which drops a size that no query names any more

    def route(self, event: Classified) -> set[Subscriber]:
        """The subscribers whose queries match the event."""
        tags = sorted(event.tags)
        if 2 * sum(comb(len(tags), size) for size in self._sizes) > len(self._targets):
            return self._compare_targets(event)
        found: set[Subscriber] = set()
        for size in self._sizes:
            for subset in combinations(tags, size):
                found.update(self._targets.get((subset, event.type), ()), self._targets.get((subset, ANY), ()))
        return found

    def _compare_targets(self, event: Classified) -> set[Subscriber]:
        found: set[Subscriber] = set()
        for (tags, type_), subscribers in self._targets.items():
            if (type_ is ANY or type_ == event.type) and event.tags.issuperset(tags):
                found |= subscribers
        return found
