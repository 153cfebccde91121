"""Committing batches of appends, and finding out what happened to a batch whose acknowledgement was lost.

A batch is one call of the function `append_batch` or `append_one` and therefore one transaction, which takes the lock
of the store, judges, stores and commits. It costs one round trip and one sync. A batch that fails stores nothing, and
each of its callers gets the error.

The memory that a call takes in client and server is bounded, so the appends of a large batch are grouped into calls of
limited size. An append that exceeds the limits by itself is large: it gets several calls, each with a chunk of its
events. All calls of a batch run in one transaction, so dividing it changes no verdict. tests/postgres/test_batches.py
compares them with the verdicts of the memory engine.

If the connection ends during the commit, the outcome is unknown. If all events of the batch have ids, the batch is
committed again: appends that the first attempt stored are found by their ids. Otherwise, or if the second attempt
fails too, the caller gets an error that says so. tests/postgres/test_faults.py and test_async_appends.py check this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from ...core.engine import InThread
from ...core.verdicts import Append, Verdict, recorded_appends_of
from ...errors import StoreClosed, StoreError, StoreUnavailable
from ...model import Placed, Put
from .connection_pool import ConnectionPool, PooledConnection
from .error_mapping import Lost
from .listener import Listener
from .recorded_appends import RecordedAppends
from .seen_log import Witness, went_back
from .statement import Arguments, Statement
from .wire import (
    FORMATS_OF_ONE,
    Afters,
    decode_afters,
    decode_chunk,
    decode_verdicts,
    encode_batch,
    encode_checks,
    encode_chunk,
    encode_one,
    is_costly,
    is_one,
)

CALL_EVENTS: Final = 4_096
CALL_BYTES: Final = 8 * 2**20  # of data; an event that is larger is sent alone
# Limits for a batch that is sent on the event loop: encoding this many events blocks the loop for 3 ms.
LOOP_EVENTS: Final = 256
LOOP_BYTES: Final = 2**20
LEAST_IDLE_MS: Final = 1_000  # between two calls of a transaction a client may need this long on a busy machine


class Committer:
    """Commits batches to the store in the schema `name`, which is quoted; with `recorded`, also their conditions."""

    def __init__(self, name: str, pool: ConnectionPool, listener: Listener, recorded: RecordedAppends | None) -> None:
        patience_ms = max(int(pool.patience_s * 1_000), 1)
        self._pool = pool
        self._listener = listener
        self._seen = listener.seen
        self._recorded = recorded
        self._append_one = Statement(
            f"SELECT {name}.append_one($1, $2, $3, $4, $5, $6, $7, {patience_ms})", FORMATS_OF_ONE
        )
        self._append_batch = Statement(f"SELECT {name}.append_batch($1, $2, $3, {patience_ms})::text")
        self._append_in_transaction = Statement(
            f"SELECT {name}.append_batch($1, $2, $3, {patience_ms})::text", prepare=False
        )
        # The lock must not be held by a process that is suspended between two calls of a transaction. The server ends
        # such a transaction before the other appends stop waiting for the lock.
        self._begin = (
            f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {max(patience_ms // 2, LEAST_IDLE_MS)}".encode()
        )
        self._narrow_checks = f"SELECT {name}.narrow_checks(%s::json)".encode()
        self._has_id = f"SELECT EXISTS (SELECT FROM {name}.event WHERE id = %s)".encode()

    def commit(self, batch: Sequence[Append]) -> Sequence[Verdict]:
        return self._commit(batch, self._seen.head)

    async def commit_async(self, batch: Sequence[Append], in_thread: InThread) -> Sequence[Verdict]:
        """Commit on the event loop, or in a thread if no connection is idle or the batch would block the loop."""
        if self._recorded is not None or not fits_event_loop(batch) or is_costly(batch):
            return await in_thread(self.commit, batch)
        earlier_head = self._seen.head
        call, arguments = self._request(batch)
        try:
            with self._pool.borrow_idle() as pooled:
                answer = None if pooled is None else await call.value_async(pooled, arguments)
        except Lost as error:
            _check_has_ids(batch, error)
            return await in_thread(partial(self._commit, batch, earlier_head, is_repeated=True))
        if answer is None:
            return await in_thread(self.commit, batch)
        return self._announce(batch, decode_verdicts(batch, answer), earlier_head)

    def _commit(self, batch: Sequence[Append], earlier_head: int, *, is_repeated: bool = False) -> Sequence[Verdict]:
        """Commit, and repeat the commit if its acknowledgement is lost.

        `earlier_head` is a head from before the first attempt. `is_repeated`: there was an attempt already, and its
        acknowledgement was lost.
        """

        def attempt() -> Sequence[Verdict]:
            nonlocal is_repeated
            try:
                return self._attempt(batch, afters)
            except Lost as error:
                is_repeated = True
                _check_has_ids(batch, error)
                raise

        try:
            afters = self._narrow(batch) if is_costly(batch) else None
            verdicts = self._pool.retry(attempt)
            return self._verdicts_of_both(batch, verdicts, earlier_head) if is_repeated else verdicts
        except StoreError as error:
            if is_repeated and _has_ids(batch):
                raise _outcome_unknown(error) from error
            raise

    def _narrow(self, batch: Sequence[Append]) -> Afters:
        """Search for conditions that name many tags before the lock is taken, so that other clients do not wait.

        Under the lock, only the events that have been stored since are searched.
        """
        ((answer,),) = self._pool.rows(self._narrow_checks, [encode_checks(batch).decode()])
        return decode_afters(batch, answer)

    def _attempt(self, batch: Sequence[Append], afters: Afters | None) -> Sequence[Verdict]:
        earlier_head = self._seen.head
        if self._recorded is not None or not fits_one_call(batch):
            return self._commit_in_calls(batch, earlier_head, afters)
        call, arguments = self._request(batch, afters)
        with self._pool.borrow() as pooled:
            answer = call.value(pooled, arguments)
        return self._announce(batch, decode_verdicts(batch, answer), earlier_head)

    def _request(self, batch: Sequence[Append], afters: Afters | None = None) -> tuple[Statement, Arguments]:
        if is_one(batch) and afters is None:
            return self._append_one, encode_one(batch[0])
        return self._append_batch, encode_batch(batch, afters)

    def _commit_in_calls(self, batch: Sequence[Append], earlier_head: int, afters: Afters | None) -> list[Verdict]:
        """Several calls in one transaction."""
        verdicts: list[Verdict] = []
        with self._pool.borrow() as pooled:  # which closes the connection if this raises before the commit
            pooled.connection.execute(self._begin)
            for group in groups(batch):
                if fits_one_call(group[:1]):
                    answer = self._append_in_transaction.value(pooled, encode_batch(group, afters))
                    verdicts += decode_verdicts(group, answer)
                else:
                    verdicts.append(self._append_chunks(pooled, group[0], afters))
            if self._recorded is not None:
                self._recorded.keep(pooled, recorded_appends_of(batch, verdicts))
            pooled.connection.commit()
        return self._announce(batch, verdicts, earlier_head)

    def _append_chunks(self, pooled: PooledConnection, append: Append, afters: Afters | None) -> Verdict:
        """Send a large append. Its first chunk is judged for all; the others follow under the same lock."""
        first = last = 0
        revisions: tuple[int, ...] = ()
        for begin, end in chunks(append):
            answer = self._append_in_transaction.value(pooled, encode_chunk(append, begin, end, afters))
            verdict = decode_chunk(append, begin, end, answer)
            if not isinstance(verdict, Placed) or verdict.already:
                assert begin == 0
                return verdict
            assert last in (0, verdict.first - 1)
            first, last = first or verdict.first, verdict.last
            revisions = revisions or verdict.revisions
        return Placed(first, last, revisions=revisions)

    def _announce(self, batch: Sequence[Append], verdicts: list[Verdict], earlier_head: int) -> list[Verdict]:
        """Tell the subscriptions of this process about the new head, and remember the event that is there."""
        head, witness = 0, None
        for append, verdict in zip(batch, verdicts, strict=True):
            if isinstance(verdict, Placed):
                head = max(head, verdict.last)
                if append.events and not verdict.already:
                    if verdict.first <= earlier_head:  # this connection has survived a restore in place
                        raise went_back(verdict.first - 1, earlier_head)
                    witness = Witness(verdict.last, event=append.events[-1])
        self._listener.advance(head, witness)
        return verdicts

    def _verdicts_of_both(
        self, batch: Sequence[Append], verdicts: Sequence[Verdict], earlier_head: int
    ) -> Sequence[Verdict]:
        """The verdicts of a repeated batch, as its callers should see them.

        An append that the second attempt finds by its ids above `earlier_head` was stored by the first attempt, so it
        is new. Of several appends with the same id, only the first is. An event that `unless` has found is not one of
        the batch. If such an append has also changed records, its caller has to read them: their revisions are lost.
        """
        told: list[Verdict] = []
        stored: set[UUID | None] = set()
        for append, verdict in zip(batch, verdicts, strict=True):
            ids = {event.id for event in append.events}
            if isinstance(verdict, Placed):
                is_above = verdict.already and verdict.first > earlier_head and not append.records
                if is_above and stored.isdisjoint(ids) and self._was_found_by_id(append):
                    verdict = Placed(verdict.first, verdict.last)
                stored |= ids
            told.append(verdict)
        return told

    def _was_found_by_id(self, append: Append) -> bool:
        """Whether a stored append was found by its ids rather than by its `unless`."""
        return append.unless is None or self._pool.rows(self._has_id, [append.events[0].id]) == [(True,)]


def _has_ids(batch: Sequence[Append]) -> bool:
    return all(append.events and append.events[0].id is not None for append in batch)


def _check_has_ids(batch: Sequence[Append], fault: Lost) -> None:
    """Refuse to repeat a batch that could then be stored twice."""
    if not _has_ids(batch):
        raise StoreUnavailable(
            f"{fault}; the append is stored completely or not at all, and without event ids the store cannot find out "
            "which: read before appending again"
        ) from fault


def _outcome_unknown(fault: StoreError) -> StoreError:
    """The error for a batch whose acknowledgement was lost, and whose second attempt failed as well."""
    kind = StoreUnavailable if isinstance(fault, (StoreUnavailable, StoreClosed)) else type(fault)
    return kind(
        f"{fault}; the reply to an earlier attempt was lost, so the append is stored completely or not at all: "
        "append again with the same event ids"
    )


def fits_one_call(appends: Iterable[Append]) -> bool:
    return _is_within(appends, CALL_EVENTS, CALL_BYTES)


def fits_event_loop(appends: Iterable[Append]) -> bool:
    return _is_within(appends, LOOP_EVENTS, LOOP_BYTES)


def groups(appends: Sequence[Append]) -> Iterator[list[Append]]:
    """The appends in order, in groups for one call each. A large append is a group of its own."""
    group: list[Append] = []
    group_bytes = 0
    for append in appends:
        append_bytes = sum(data_sizes([append]))
        is_large = not fits_one_call([append])
        if group and (is_large or group_bytes + append_bytes > CALL_BYTES):
            yield group
            group, group_bytes = [], 0
        group.append(append)
        group_bytes += append_bytes
        if is_large:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def chunks(append: Append) -> Iterator[tuple[int, int]]:
    """The chunks of a large append: the index of the first event of each, and the index after its last one."""
    begin = chunk_bytes = 0
    for index, event in enumerate(append.events):
        chunk_bytes += len(event.data)
        if index > begin and (index - begin == CALL_EVENTS or chunk_bytes > CALL_BYTES):
            yield begin, index
            begin, chunk_bytes = index, len(event.data)
    yield begin, len(append.events)


def _is_within(appends: Iterable[Append], events: int, data_bytes: int) -> bool:
    sizes = data_sizes(appends)
    return len(sizes) <= events and sum(sizes) <= data_bytes


def data_sizes(appends: Iterable[Append]) -> list[int]:
    """The bytes of each event's data and, together, those of the records that an append changes."""
    sizes = []
    for append in appends:
        sizes += [len(event.data) for event in append.events]
        if append.records:
            sizes.append(sum(len(change.value) for change in append.records if isinstance(change, Put)))
    return sizes
