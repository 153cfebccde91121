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

from ...commit import Append, Behind, Conflicting, Verdict, judge_ids
from ...model import Placed, Query
from .binding import WANT_ALL, Rows, Transaction
from .keys import Keys, position_of_value
from .postings import Stream, stream_of
from .scanning import fetch_events


class Judgement:
    def __init__(self, append: Append, keys: Keys) -> None:
        self._append = append
        self._keys = keys
        self._transaction: Transaction | None = None
        self._unless = None if append.unless is None else self._stream(append.unless, 0)
        self._conditions = [self._stream(c.fail_if_events_match, c.after) for c in append.conditions]

    def verdict(self, transaction: Transaction) -> Verdict | None:
        """What the past says of the append; None if it may be stored."""
        self._transaction = transaction
        self._begin()
        return self._judge_ids(transaction) or self._judge_queries() or self._judge_checkpoint(transaction)

    def _begin(self) -> None:
        streams = self._conditions if self._unless is None else [self._unless, *self._conditions]
        for stream in streams:
            stream.again()
            stream.prime()

    def _stream(self, query: Query, after: int) -> Stream:
        return stream_of(query, self._keys, self._fetch, after=after)

    def _fetch(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> Rows:
        assert self._transaction is not None
        return self._transaction.snapshot.get_range(begin, end, limit, reverse, WANT_ALL)

    def _judge_ids(self, transaction: Transaction) -> Verdict | None:
        ids = [event.id for event in self._append.events if event.id is not None]
        reads = [transaction.get(self._keys.id(id)) for id in ids]
        return judge_ids([(id, position_of_value(read.value) or None) for id, read in zip(ids, reads, strict=True)])

    def _judge_queries(self) -> Verdict | None:
        if self._unless is not None:
            position = self._unless.seek(0)
            if position is not None:
                return Placed(position, position, already=True)
        for condition, stream in zip(self._append.conditions, self._conditions, strict=True):
            position = stream.seek(condition.after + 1)
            if position is not None:
                [conflict] = fetch_events([position], self._keys, self._fetch)
                return Conflicting(condition, position, conflict)
        return None

    def _judge_checkpoint(self, transaction: Transaction) -> Verdict | None:
        if self._append.checkpoint is None:
            return None
        name, position = self._append.checkpoint
        current = position_of_value(transaction.get(self._keys.checkpoint(name)).value)
        return Behind(name, position, current) if position <= current else None
