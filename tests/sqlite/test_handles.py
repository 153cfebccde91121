"""Several handles on one file, as several processes have them: each sees what the other handles append."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest
from tests.crash.workload import NAME, open_on
from tests.support.disk import Disk, Step, failing, no_fault

from fencepost import (
    AppendCondition,
    CheckpointBehind,
    ConditionFailed,
    Event,
    EventStore,
    Placed,
    Query,
    StoreCorrupt,
    StoreError,
)
from fencepost.buckets import matches
from fencepost.core.verdicts import Append, Ledger, Verdict, judge
from fencepost.engine import engine_of
from fencepost.engines.sqlite import SqliteEngine, committer, event_rows, ledger, sizes, verify
from fencepost.engines.sqlite.short_reads import Read, ShortReads
from fencepost.engines.sqlite.sizes import KEPT_BYTES
from fencepost.engines.sqlite.tail import Tail

Open = Callable[[], EventStore]

BLOCKED_S = 0.2  # a rival that has not ended by then waits for the writer that it races with

A = Query.of(tags={"a"})
B = Query.of(tags={"b"})


def tagged(tag: str, count: int = 1) -> list[Event]:
    return [Event("Happened", data=b"%d" % number, tags={tag}) for number in range(count)]


def sqlite_of(store: EventStore) -> SqliteEngine:
    engine = engine_of(store)
    assert isinstance(engine, SqliteEngine)
    return engine


def short_reads(store: EventStore) -> ShortReads:
    return sqlite_of(store)._short


def overtake(monkeypatch: pytest.MonkeyPatch, store: EventStore, rival: Callable[[], None]) -> None:
    """Call the rival between the judging and the inserting of each batch that holds no lock."""
    committer = sqlite_of(store)._writable()
    insert = committer._insert

    def overtaken(rows: Any, records: Any) -> None:
        if not committer.writer.in_transaction:
            rival()
        insert(rows, records)

    monkeypatch.setattr(committer, "_insert", overtaken)


def test_a_condition_sees_what_another_handle_has_stored(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.append(tagged("a"))
    with pytest.raises(ConditionFailed) as refusal:
        other.append(tagged("x"), AppendCondition(A))
    assert refusal.value.conflict.position == 1
    assert other.append(tagged("x"), AppendCondition(A, after=1)).first == 2


def test_handles_that_take_turns_place_their_events_one_after_another(open_store: Open) -> None:
    stores = [open_store() for _ in range(3)]
    placed = [stores[number % 3].append(tagged("a", 1 + number % 4)) for number in range(30)]
    assert [first.last + 1 for first in placed[:-1]] == [then.first for then in placed[1:]]


def test_a_conflict_that_comes_between_judging_and_inserting_is_judged_again(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_store(), open_store()
    overtake(monkeypatch, one, lambda: other.append(tagged("a")))
    with pytest.raises(ConditionFailed) as refusal:
        one.append(tagged("x"), AppendCondition(A))
    assert refusal.value.conflict.position == 1
    assert [event.tags for event in one.read()] == [{"a"}]


def test_an_unrelated_event_that_comes_between_judging_and_inserting_only_moves_the_append(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_store(), open_store()
    rivals = iter([lambda: other.append(tagged("b", 3))])
    overtake(monkeypatch, one, lambda: next(rivals, lambda: None)())
    assert one.append(tagged("a"), AppendCondition(A)) == Placed(4, 4)
    with pytest.raises(ConditionFailed):
        other.append(tagged("x"), AppendCondition(A, after=3))


def test_a_batch_that_is_overtaken_again_and_again_takes_the_write_lock(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_store(), open_store()
    overtakings = []
    overtake(monkeypatch, one, lambda: overtakings.append(other.append(tagged("b"))))
    placed = one.append(tagged("a"), AppendCondition(A))
    assert placed.first == len(overtakings) + 1
    assert len(overtakings) == sizes.OPTIMISTIC_TRIES


def test_an_append_of_many_statements_is_overtaken_as_a_whole(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    one, other = open_store(), open_store()
    rivals = iter([lambda: other.append(tagged("b"))])
    overtake(monkeypatch, one, lambda: next(rivals, lambda: None)())
    assert one.append(tagged("a", 20)) == Placed(2, 21)
    assert [event.position for event in one.read(A)] == list(range(2, 22))


def test_a_refusal_too_is_judged_by_what_is_in_the_file(open_store: Open) -> None:
    """A refusal inserts nothing, so it cannot collide with another append: the head must be checked."""
    one, other = open_store(), open_store()
    first, second = Event("Happened", id=UUID(int=1)), Event("Happened", id=UUID(int=2))
    one.append([first])
    other.append([second])
    # As far as this handle knows, one of the ids is stored and the other is not.
    assert one.append([first, second]) == Placed(1, 2, already=True)


def test_a_checkpoint_that_another_handle_has_moved_is_not_moved_back(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.append([], checkpoint=("consumer", 5))
    other.append([], checkpoint=("consumer", 7))
    with pytest.raises(CheckpointBehind):
        one.append([], checkpoint=("consumer", 6))
    assert one.checkpoint("consumer") == 7


def test_a_checkpoint_that_is_moved_between_judging_and_storing_is_not_moved_back(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_store(), open_store()
    rivals: list[threading.Thread] = []

    def judge_slowly(appends: Sequence[Append], ledger: Ledger) -> list[Verdict]:
        verdicts = judge(appends, ledger)
        if not rivals:
            rivals.append(threading.Thread(target=lambda: other.append([], checkpoint=("consumer", 7))))
            rivals[0].start()
            rivals[0].join(BLOCKED_S)
        return verdicts

    monkeypatch.setattr(committer, "judge", judge_slowly)
    one.append([], checkpoint=("consumer", 6))
    rivals[0].join()
    assert one.checkpoint("consumer") == 7


@pytest.mark.usefixtures("small")
def test_a_condition_on_what_was_the_tail_a_moment_ago_is_judged_in_memory(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    while sqlite_of(store)._tail.view.older is None:
        store.append(tagged("b"))
    before = sqlite_of(store)._tail.view.tail.floor - 1
    assert sqlite_of(store)._tail.view.older.floor <= before, "the condition begins in the tail before"  # type: ignore[union-attr]

    def on_disk(*given: object) -> None:
        raise AssertionError("the disk was asked")

    monkeypatch.setattr(ledger, "shortlist", on_disk)
    monkeypatch.setattr(ledger, "ready_parts", on_disk)
    assert store.append(tagged("x"), AppendCondition(A, after=before)).first > before
    with pytest.raises(ConditionFailed) as refusal:
        store.append(tagged("x"), AppendCondition(B, after=before))
    assert refusal.value.conflict.position == before + 1


@pytest.mark.usefixtures("small")
def test_a_short_reading_by_two_tags_finds_those_that_have_both(open_store: Open) -> None:
    store = open_store()
    both = Event("Happened", tags={"a", "b"})
    store.append([*tagged("a"), both, *tagged("b")])
    for _ in range(20):
        store.append(tagged("c"))
    assert sqlite_of(store)._tail.view.tail.floor > 3, "they are on disk"
    query = Query.of(tags={"a", "b"})
    assert [event.position for event in store.read(query)] == [2]
    with pytest.raises(ConditionFailed) as refusal:
        store.append(tagged("x"), AppendCondition(query))
    assert refusal.value.conflict.position == 2


async def test_a_reading_of_large_events_is_not_done_on_the_event_loop(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events are still read, in a thread."""
    monkeypatch.setattr(sizes, "SHORT_BYTES", 3 * KEPT_BYTES)
    store = open_store()
    store.append([Event("Large", data=b"x" * (KEPT_BYTES + 1), tags={"a"}) for _ in range(3)])

    threads = 0

    async def in_thread(call: Callable[[], Any]) -> Any:
        nonlocal threads
        threads += 1
        return call()

    async def count(limit: int | None) -> int:
        begun = await sqlite_of(store).begin_async(
            A, after=0, up_to=None, limit=limit, backwards=False, in_thread=in_thread
        )
        return len(begun.page)

    assert (await count(2), threads) == (2, 0)
    assert (await count(None), threads) == (3, 1)
    assert [event.position for event in store.read(A)] == [1, 2, 3]


def test_a_short_read_that_fails_fails_for_its_own_caller_alone(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for tag in ("a", "b"):  # too large to be kept in memory
        store.append([Event("Happened", data=bytes(KEPT_BYTES + 1), tags={tag})])
    few_at, at = event_rows.EventRows.few_at, event_rows.EventRows.at

    def broken_for_b(fetch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch_unless_b(rows: event_rows.EventRows, connection: apsw.Connection, keys: list[int], *more: int) -> Any:
            if keys == [2]:
                raise apsw.CorruptError("planted")
            return fetch(rows, connection, keys, *more)

        return fetch_unless_b

    monkeypatch.setattr(event_rows.EventRows, "few_at", broken_for_b(few_at))
    monkeypatch.setattr(event_rows.EventRows, "at", broken_for_b(at))
    reads = [Read(query, 0, None, None, False) for query in (A, B)]
    (_, of_a), (reach, of_b) = short_reads(store).begin(reads)
    assert of_a is not None
    assert [event.position for event in of_a] == [1]
    assert (reach, of_b) == (2, None), "the read is left to its caller"
    with pytest.raises(StoreCorrupt, match="planted"):
        list(store.read(B))
    assert [event.position for event in store.read(A)] == [1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_what_several_handles_have_appended_is_read_alike_from_memory_and_from_disk(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    monkeypatch.setattr(sizes, "SHORT_EVENTS", 100)
    chance = random.Random(3)
    stores = [open_store(), open_store()]
    writing = sqlite_of(stores[0])._writing
    log: list[Event] = []
    for number in range(80):
        size = KEPT_BYTES + 1 if number % 7 == 0 else 3
        tags = chance.sample("abc", 1 + number % 2)
        event = Event(f"T{number % 3}", data=b"%d" % number * size, tags=tags)
        stores[int(number % 3 > 0) if busy else number % 2].append([event])
        log.append(event)
        query = chance.choice([A, Query.of(types={"T1"}, tags={"b"}), A | B, Query.of(tags={"a", "b"})])
        after, up_to = sorted(chance.sample(range(number + 2), 2))
        bounds = {"after": after, "up_to": up_to, "limit": chance.choice([None, 2]), "backwards": number % 2 == 0}
        expected = [at for at, each in enumerate(log, 1) if matches(each, query) and after < at <= up_to]
        expected = (expected[::-1] if bounds["backwards"] else expected)[: bounds["limit"]]
        # While the lock is held, the tail does not take in what other handles have appended.
        with writing if busy else nullcontext():
            ((_, page),) = short_reads(stores[0]).begin([Read(query, **bounds)])
        assert page is not None, "it is short"
        assert [(event.position, event.event) for event in page] == [(at, log[at - 1]) for at in expected]


def test_after_a_collision_the_next_batches_catch_up_before_judging(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_store(), open_store()
    committer = sqlite_of(one)._writable()
    judged = []
    judge_and_store = committer._judge_and_store
    monkeypatch.setattr(committer, "_judge_and_store", lambda *batch: judged.append(1) or judge_and_store(*batch))
    attempts = []
    for _ in range(4):
        other.append(tagged("b"))
        judged.clear()
        one.append(tagged("a"))
        attempts.append(len(judged))
    assert attempts == [2, 1, 1, 1]
    for _ in range(sizes.ALERT_BATCHES):
        one.append(tagged("a"))
    assert committer._alert == 0, "no other handle has appended since"


@pytest.mark.usefixtures("small")
def test_a_handle_whose_tail_was_flushed_by_another_judges_rightly(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.append(tagged("a"))
    for _ in range(20):
        other.append(tagged("b"))
    assert sqlite_of(other)._tail.view.tail.floor > sqlite_of(one)._tail.view.committed, (
        "the tail was flushed beyond what one knows"
    )
    with pytest.raises(ConditionFailed) as refusal:
        one.append(tagged("x"), AppendCondition(B, after=1))
    assert refusal.value.conflict.position == 2
    assert one.append(tagged("a"), AppendCondition(A, after=1)).first == 22


@pytest.mark.usefixtures("small")
def test_two_handles_that_flush_the_same_tail_write_it_once(open_store: Open, path: Path) -> None:
    one, other = open_store(), open_store()
    for _ in range(40):
        one.append(tagged("a"))
        other.append(tagged("b"))
    assert verify(path).problems == []
    assert len(list(one.read(A))) == len(list(other.read(B))) == 40


def test_a_reader_sees_what_another_handle_has_stored_before_any_commit_of_its_own(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.append(tagged("a", 1_000))
    assert len(list(other.read(A))) == 1_000
    assert len(list(other.read(A, backwards=True, limit=7))) == 7


def test_after_a_storage_error_what_was_staged_is_gone_from_the_tail(tmp_path: Path) -> None:
    disk = Disk()
    with open_on(disk, tmp_path) as store:
        store.append(tagged("b"))
        disk.fault = failing("sync", apsw.SQLITE_IOERR_FSYNC)
        with pytest.raises(StoreError):
            store.append(tagged("a"))
        assert list(store.read(A)) == []
        assert store.append(tagged("a"), AppendCondition(A)) == Placed(2, 2)
    assert verify(tmp_path / NAME).problems == []


def test_a_check_that_cannot_be_made_is_a_storage_error_and_no_refusal(small: None, tmp_path: Path) -> None:
    disk = Disk()
    with open_on(disk, tmp_path) as store:
        for _ in range(20):
            store.append(tagged("a"))
    with open_on(disk, tmp_path) as store:
        disk.fault = failing("read", apsw.SQLITE_IOERR_READ, times=None)
        with pytest.raises(StoreError):
            store.append(tagged("x"), AppendCondition(A))
        disk.fault = no_fault
        with pytest.raises(ConditionFailed):
            store.append(tagged("x"), AppendCondition(A))


@pytest.mark.parametrize("stop_at", [3, 17])
def test_catching_up_starts_again_after_an_interrupt(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """An interrupt may come anywhere, for example in the middle of an addition to the tail."""
    one, other = open_store(), open_store()
    one.append(tagged("a"))
    other.append(tagged("b", 20))
    with monkeypatch.context() as patch:
        interrupt_addition(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            one.append(tagged("x"))
    with pytest.raises(ConditionFailed) as refusal:
        one.append(tagged("x"), AppendCondition(B, after=20))
    assert refusal.value.conflict.position == 21
    assert one.append(tagged("x"), AppendCondition(B, after=21)).first == 22
    with pytest.raises(ConditionFailed) as refusal:
        one.append(tagged("x"), AppendCondition(A))
    assert refusal.value.conflict.position == 1
    assert [event.position for event in one.read(B)] == list(range(2, 22))


def test_an_append_that_was_interrupted_while_it_was_staged_leaves_nothing_behind(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.append(tagged("a", 3))
    with monkeypatch.context() as patch:
        interrupt_addition(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            store.append(tagged("b", 5))
    assert store.append(tagged("b"), AppendCondition(B)) == Placed(4, 4)
    with pytest.raises(ConditionFailed):
        store.append(tagged("x"), AppendCondition(A, after=2))
    assert store.append(tagged("x"), AppendCondition(A, after=3)) == Placed(5, 5)


def interrupt_addition(patch: pytest.MonkeyPatch, nth: int) -> None:
    """Interrupt the nth addition to a tail from now on, half way."""
    add, additions = Tail.add, iter(range(1, 1_000))

    def interrupted(tail: Tail, *event: Any) -> None:
        if next(additions) == nth:
            tail.head += 1
            raise KeyboardInterrupt
        add(tail, *event)

    patch.setattr(Tail, "add", interrupted)


@pytest.mark.usefixtures("small")
def test_two_handles_that_checkpoint_at_the_same_time_do_not_fail_each_others_appends(tmp_path: Path) -> None:
    disk = Disk()
    with open_on(disk, tmp_path) as one, open_on(disk, tmp_path) as other:
        met = []

        def meet(step: Step) -> None:
            # The file itself is written by checkpoints only: one handle is in the middle of its own.
            if step.kind == "write" and step.file == NAME and not met:
                met.append(step)
                sqlite_of(other)._writable().log.pages = sizes.CHECKPOINT_PAGES
                other.append(tagged("b"))

        disk.fault = meet
        for _ in range(30):
            one.append(tagged("a"))
        disk.fault = no_fault
        assert met, "two checkpoints have met"
        assert len(list(one.read(A))) == 30
        assert len(list(other.read(B))) == 1
    assert verify(tmp_path / NAME).problems == []


@pytest.mark.usefixtures("small")
def test_opening_the_file_during_a_checkpoint_waits_for_its_end(tmp_path: Path) -> None:
    disk = Disk()
    opened: list[EventStore] = []
    opening = threading.Thread(target=lambda: opened.append(open_on(disk, tmp_path)))
    with open_on(disk, tmp_path) as store:

        def meet(step: Step) -> None:
            if step.kind == "write" and step.file == NAME and opening.ident is None:
                opening.start()
                opening.join(BLOCKED_S)

        disk.fault = meet
        for _ in range(30):
            store.append(tagged("a"))
        opening.join()
        (other,) = opened
        assert other.append(tagged("b"), AppendCondition(B)).first == 31
        other.close()


def test_a_reading_after_more_than_the_file_can_count_is_empty(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.append([Event("T1", tags={"a"})])
    other.append([Event("T1", tags={"a"})])
    with sqlite_of(one)._writing:  # so what the other has appended is not taken into the tail
        assert list(one.read(A, after=2**70)) == []


def test_a_waiting_reader_looks_for_the_head_only_after_a_commit(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, writing = open_store(), open_store()
    engine = sqlite_of(waiting)
    looked: list[int] = []
    read = event_rows.Head.read

    def noting(self: event_rows.Head, connection: apsw.Connection) -> int:
        looked.append(read(self, connection))
        return looked[-1]

    monkeypatch.setattr(event_rows.Head, "read", noting)
    monkeypatch.setattr(sizes, "POLL_S", 0.001)
    assert engine.wait(0, timeout_s=0.1) == 0
    assert looked == [0]
    for expected in (1, 2):
        writing.append(tagged("a"))
        assert engine.wait(expected - 1, timeout_s=60) == expected
        assert engine.wait(expected, timeout_s=0.01) == expected
        assert looked == list(range(expected + 1))
