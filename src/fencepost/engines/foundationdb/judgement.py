"""The verdict on an append, as far as the past decides it, and the conflict keys that decide the rest.

Everything up to the transaction's read version is judged here, in the order that every engine keeps: ids, `unless`,
conditions, checkpoint, records. Ids, checkpoints and records are read so that a concurrent write to them is a conflict.
Queries are judged by snapshot reads, which conflict with nothing: what commits after the read version is left to the
buckets that the transaction names as its conflict keys. So no conflict is wider than the bucket, and none is missed
(tests/foundationdb/test_exactness.py checks this).

A judgement lasts for all tries of an append. What it has found free of matches stays so, hence the next try judges
only what is new, and a past that takes longer to judge than a transaction may last is judged in several.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

from ...buckets import Bucket, read_targets
from ...core.verdicts import Append, Behind, Changed, Changes, Conflict, Verdict, judge_ids, judge_records, keys_of
from ...model import MAX_POSITION, AppendCondition, Placed, Record
from .binding import Connection, Transaction
from .layout import SUBSET_TAGS, Keys, at, position_in, position_of_value
from .pages import fetch_events
from .postings import Stream, stream_of
from .transactions import RangeRead, RangeReader, Steps

RECENT: Final = 16  # postings of a tag that say how rare it is


class Judgement:
    def __init__(self, append: Append, keys: Keys, connection: Connection) -> None:
        self._append = append
        self._keys = keys
        self._reader = RangeReader(connection)
        # `unless` comes first, without a condition. Each has the matches of its query, and the first rank to look at.
        self._guards: list[tuple[AppendCondition | None, Stream, int]] = []
        if append.unless is not None:
            self._guards.append((None, stream_of(append.unless, keys, self._reader, after=0), 1))
        for condition in append.conditions:
            stream = stream_of(condition.fail_if_events_match, keys, self._reader, after=condition.after)
            self._guards.append((condition, stream, condition.after + 1))
        self.buckets = ReadBuckets(append, keys)
        self.changes: Changes = {}  # of records, as the last try has worked them out

    def verdict(self, transaction: Transaction) -> Steps[Verdict | None]:
        """What the past says of the append; None if it may be stored."""
        self._reader.use(transaction)
        for _, stream, rank in self._guards:
            stream.extend()
            stream.prime(rank)
        rarities = self.buckets.begin(self._reader)
        verdict = yield from self._judge_ids(transaction)
        if verdict is None:
            verdict = yield from self._judge_queries()
        if verdict is None:
            verdict = yield from self._judge_records(transaction)
        if verdict is None:
            yield from self.buckets.take(rarities)
        return verdict

    @property
    def pages(self) -> int:
        """Range reads that were begun."""
        return self._reader.begun

    def _judge_ids(self, transaction: Transaction) -> Steps[Verdict | None]:
        ids = [event.id for event in self._append.events if event.id is not None]
        reads = [transaction.get(self._keys.id(id)) for id in ids]
        yield from reads
        return judge_ids([(id, position_of_value(read.value) or None) for id, read in zip(ids, reads, strict=True)])

    def _judge_queries(self) -> Steps[Verdict | None]:
        for condition, stream, rank in self._guards:
            position = yield from stream.seek(rank)
            if position is None:
                continue
            if condition is None:
                return Placed(position, position, already=True)
            [conflict] = yield from fetch_events([position], self._keys, self._reader)
            return Conflict(condition, position, conflict)
        return None

    def _judge_records(self, transaction: Transaction) -> Steps[Verdict | None]:
        names = keys_of(self._append)
        if not names:
            return None
        keys = [self._keys.record(name) for name in names]
        reads = [transaction.get(key) for key in keys]
        yield from reads
        found: dict[str, Record | None] = {
            name: None if read.value is None else self._keys.record_at(key, read.value)
            for name, key, read in zip(names, keys, reads, strict=True)
        }
        judged = judge_records(self._append, found.get)
        if isinstance(judged, (Behind, Changed)):
            return judged
        self.changes = judged
        return None


class ReadBuckets:
    """The buckets that an append's conditions and `unless` read.

    An event writes the bucket of each pair of its tags. An item of three tags or more therefore reads the bucket of two
    of them: any two are sound, and the rarest two meet the fewest events that share them without matching. How rare a
    tag is shows in its newest postings: the longer ago the sixteenth newest, the rarer. If a try conflicts even so, the
    next try reads another pair, so that events which share just one pair of the item's tags cost at most one more try.
    """

    def __init__(self, append: Append, keys: Keys) -> None:
        self._keys = keys
        queries = [append.unless, *(condition.fail_if_events_match for condition in append.conditions)]
        targets: list[Bucket] = [bucket for query in queries if query for bucket in read_targets(query)]
        self._exact = [keys.bucket(bucket) for bucket in targets if len(bucket[0]) <= SUBSET_TAGS]
        self._long = [bucket for bucket in targets if len(bucket[0]) > SUBSET_TAGS]
        self._tags = sorted({tag for tags, _ in self._long for tag in tags})
        self._rarity: dict[str, tuple[int, int]] = {}

    def sized(self) -> list[bytes]:
        """Conflict keys that are at least as long as those that will be read."""
        return self._chosen({tag: (-len(tag), 0) for tag in self._tags}, 0)

    def begin(self, reader: RangeReader) -> list[tuple[str, RangeRead]]:
        """Begin to read how rare each tag is, unless that is known."""
        if self._rarity:
            return []
        return [(tag, self._newest(reader, tag)) for tag in self._tags]

    def take(self, reads: list[tuple[str, RangeRead]]) -> Steps[None]:
        found: dict[str, tuple[int, int]] = {}
        for tag, read in reads:
            rows = yield from read.rows()
            oldest = position_in(rows[-1].key, self._keys.tag(tag)) if len(rows) == RECENT else 0
            found[tag] = oldest, len(rows)
        self._rarity.update(found)

    def keys(self, number: int) -> list[bytes]:
        """The conflict keys that try number `number` reads."""
        return self._chosen(self._rarity, number)

    def _chosen(self, rarity: dict[str, tuple[int, int]], number: int) -> list[bytes]:
        chosen = dict.fromkeys(self._exact)
        for tags, type in self._long:
            pairs = list(combinations(sorted(tags, key=lambda tag: (rarity[tag], tag)), SUBSET_TAGS))
            chosen[self._keys.bucket((tuple(sorted(pairs[number % len(pairs)])), type))] = None
        return list(chosen)

    def _newest(self, reader: RangeReader, tag: str) -> RangeRead:
        prefix = self._keys.tag(tag)
        return reader.begin(at(prefix, 0), at(prefix, MAX_POSITION + 1), RECENT, True)
