"""The verdict on an append, as far as the past decides it.

Everything up to the transaction's read version is judged here, in the order that every engine
keeps: ids, `unless`, conditions, checkpoint. Ids and checkpoints are read so that a concurrent
write to them is a conflict. Queries are judged by snapshot reads, which conflict with nothing:
what commits after the read version is left to the buckets that the transaction names as its
conflict keys. So no conflict is wider than the bucket, and none is missed.

A judgement lasts for all tries of an append. What it has found free of matches stays so, hence
the next try judges only what is new, and a past that takes longer to judge than a transaction
may last is judged in several.
"""

from __future__ import annotations

from ...core.judging import Append, Behind, Conflicting, Verdict, judge_ids
from ...model import AppendCondition, Placed
from .binding import Connection, Transaction
from .keys import Keys, position_of_value
from .postings import Stream, stream_of
from .ranges import RangeRead
from .rarity import ReadBuckets
from .scanning import fetch_events
from .waiting import Steps


class Judgement:
    def __init__(self, append: Append, keys: Keys, connection: Connection) -> None:
        self._append = append
        self._keys = keys
        self._connection = connection
        self._transaction: Transaction | None = None
        # `unless` comes first, without a condition. Each has the matches of its query, and the first rank to look at.
        self._guards: list[tuple[AppendCondition | None, Stream, int]] = []
        if append.unless is not None:
            self._guards.append((None, stream_of(append.unless, keys, self._fetch, after=0), 1))
        for condition in append.conditions:
            stream = stream_of(condition.fail_if_events_match, keys, self._fetch, after=condition.after)
            self._guards.append((condition, stream, condition.after + 1))
        self.buckets = ReadBuckets(append, keys)
        self.pages = 0  # range reads that were begun

    def verdict(self, transaction: Transaction) -> Steps[Verdict | None]:
        """What the past says of the append; None if it may be stored."""
        self._transaction = transaction
        for _, stream, rank in self._guards:
            stream.renew(grown=True)
            stream.prime(rank)
        rarities = self.buckets.begin(self._fetch)
        verdict = yield from self._judge_ids(transaction)
        if verdict is None:
            verdict = yield from self._judge_queries()
        if verdict is None:
            verdict = yield from self._judge_checkpoint(transaction)
        if verdict is None:
            yield from self.buckets.take(rarities)
        return verdict

    def _fetch(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> RangeRead:
        assert self._transaction is not None
        self.pages += 1
        return RangeRead(self._connection, self._transaction.snapshot, begin, end, limit, reverse)

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
            [conflict] = yield from fetch_events([position], self._keys, self._fetch)
            return Conflicting(condition, position, conflict)
        return None

    def _judge_checkpoint(self, transaction: Transaction) -> Steps[Verdict | None]:
        if self._append.checkpoint is None:
            return None
        name, position = self._append.checkpoint
        read = transaction.get(self._keys.checkpoint(name))
        yield read
        current = position_of_value(read.value)
        return Behind(name, position, current) if position <= current else None
