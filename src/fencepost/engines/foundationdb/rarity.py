"""Which conflict keys a condition reads, if its items name more tags than a conflict key has.

An event writes the bucket of each pair of its tags. An item of three tags or more therefore reads the bucket of two of
them: any two are sound, and the rarest two meet the fewest events that share them without matching. How rare a tag is
shows in its newest postings: the longer ago the sixteenth newest, the rarer. If a try conflicts even so, the next
try reads another pair, so that events which share just one pair of the item's tags cost at most one more try.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

from ...buckets import Bucket, read_targets
from ...core.judging import Append
from ...model import MAX_POSITION
from .keys import SUBSET_TAGS, Keys, at, position_in
from .ranges import Fetch, RangeRead
from .waiting import Steps

RECENT: Final = 16


class ReadBuckets:
    """The buckets that an append's conditions and `unless` read."""

    def __init__(self, append: Append, keys: Keys) -> None:
        self._keys = keys
        queries = [append.unless, *(condition.fail_if_events_match for condition in append.conditions)]
        self._targets: list[Bucket] = [bucket for query in queries if query for bucket in read_targets(query)]
        self._tags = sorted({tag for tags, _ in self._targets if len(tags) > SUBSET_TAGS for tag in tags})
        self._rarity: dict[str, tuple[int, int]] = {}

    def sized(self) -> list[bytes]:
        """Conflict keys that are at least as long as those that will be read."""
        longest = {tag: (-len(tag), 0) for tag in self._tags}
        return list(self._chosen(longest, 0))

    def begin(self, fetch: Fetch) -> list[tuple[str, RangeRead]]:
        """Begin to read how rare each tag is, unless that is known."""
        if self._rarity:
            return []
        return [(tag, self._newest(fetch, tag)) for tag in self._tags]

    def take(self, reads: list[tuple[str, RangeRead]]) -> Steps[None]:
        found: dict[str, tuple[int, int]] = {}
        for tag, read in reads:
            rows = yield from read.rows()
            oldest = position_in(rows[-1].key, self._keys.tag(tag)) if len(rows) == RECENT else 0
            found[tag] = oldest, len(rows)
        self._rarity.update(found)

    def keys(self, number: int) -> list[bytes]:
        """The conflict keys that try number `number` reads."""
        return list(self._chosen(self._rarity, number))

    def _chosen(self, rarity: dict[str, tuple[int, int]], number: int) -> dict[bytes, None]:
        chosen: dict[bytes, None] = {}
        for tags, type in self._targets:
            if len(tags) > SUBSET_TAGS:
                pairs = list(combinations(sorted(tags, key=lambda tag: (rarity[tag], tag)), SUBSET_TAGS))
                tags = tuple(sorted(pairs[number % len(pairs)]))
            chosen[self._keys.bucket((tags, type))] = None
        return chosen

    def _newest(self, fetch: Fetch, tag: str) -> RangeRead:
        prefix = self._keys.tag(tag)
        return fetch(at(prefix, 0), at(prefix, MAX_POSITION + 1), RECENT, True)
