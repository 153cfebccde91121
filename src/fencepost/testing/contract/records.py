"""Records beside the log: compare-and-set, in order, with the events of an append or not at all."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest

from ...core.verdicts import Append, Changed
from ...errors import AppendRefused, CheckpointBehind, ConditionFailed, RecordChanged, StoreUnavailable
from ...model import Delete, Event, Placed, Put, Record, limits
from ..faults import once, raising
from ..stores import Store, engine_beneath
from .base import (
    BLOCKED_S,
    Contract,
    Running,
    attempt,
    condition_fails,
    events,
    no_new,
    positions,
    race,
    tagged,
    together,
    types,
)
from .input import ODD_STRINGS


def changed(store: Store, *args: object, **options: object) -> RecordChanged:
    """Make an append whose records must have changed, and return its refusal."""
    with pytest.raises(RecordChanged) as refused:
        store.append(*args, **options)  # type: ignore[arg-type]
    return refused.value


class RecordsContract(Contract):
    def test_a_record_that_does_not_exist_is_none(self, store: Store) -> None:
        assert store.records.get("name") is None
        assert list(store.records.list()) == []

    def test_each_change_of_a_record_adds_one_to_its_revision(self, store: Store, again: Store) -> None:
        record = store.records.put("name", b"0", expected=0)
        for value in (b"1", b"", bytes(range(256))):
            following = again.records.put("name", value, expected=record.revision)
            assert following == Record("name", value, record.revision + 1)
            assert store.records.get("name") == again.records.get("name") == following
            record = following

    def test_a_change_that_expects_another_revision_is_refused_with_the_current_record(self, store: Store) -> None:
        first = store.records.put("name", b"0", expected=0)
        current = store.records.put("name", b"1", expected=first.revision)
        for expected in (0, first.revision, current.revision + 1, limits.MAX_REVISION):
            with pytest.raises(RecordChanged) as refused:
                store.records.put("name", b"2", expected=expected)
            assert (refused.value.name, refused.value.expected, refused.value.current) == ("name", expected, current)
        with pytest.raises(RecordChanged):
            store.records.delete("name", expected=first.revision)
        assert store.records.get("name") == current

    def test_a_change_of_a_record_that_does_not_exist_is_refused(self, store: Store) -> None:
        for change in (Put("name", b"", 1), Delete("name", 1)):
            assert changed(store, [], records=[change]).current is None
        assert store.records.get("name") is None

    def test_a_deleted_record_is_gone_and_can_be_created_again(self, store: Store) -> None:
        record = store.records.put("name", b"0", expected=0)
        store.records.delete("name", expected=record.revision)
        assert store.records.get("name") is None
        assert list(store.records.list()) == []
        assert store.records.put("name", b"1", expected=0) == store.records.get("name")

    def test_a_revision_from_before_a_deletion_is_never_valid_again(self, store: Store, again: Store) -> None:
        seen: set[int] = set()
        for changes in (3, 1, 2, 1):
            record = store.records.put("name", b"", expected=0)
            for _ in range(changes):
                assert record.revision not in seen
                seen.add(record.revision)
                record = store.records.put("name", b"", expected=record.revision)
            for stale in seen:
                with pytest.raises(RecordChanged):
                    again.records.put("name", b"stale", expected=stale)
            seen.add(record.revision)
            again.records.delete("name", expected=record.revision)

    def test_a_record_that_is_deleted_and_created_in_one_group_commit_has_a_new_revision(self, store: Store) -> None:
        record = store.records.put("name", b"0", expected=0)
        appends = [
            Append((), records=(Delete("name", record.revision),)),
            Append((), records=(Put("name", b"1", 0),)),
            Append((), records=(Put("name", b"stale", record.revision),)),
        ]
        deleted, created, stale = engine_beneath(store).commit(appends)
        assert isinstance(deleted, Placed)
        assert deleted.revisions == (0,)
        assert isinstance(created, Placed)
        assert created.revisions[0] > record.revision
        current = Record("name", b"1", created.revisions[0])
        assert stale == Changed("name", record.revision, current)
        assert store.records.get("name") == current

    def test_names_and_values_of_any_kind_are_kept(self, store: Store) -> None:
        for index, name in enumerate(ODD_STRINGS):
            store.records.put(name, b"%d" % index, expected=0)
        listed = {record.name: record.value for record in store.records.list()}
        assert listed == {name: b"%d" % index for index, name in enumerate(ODD_STRINGS)}
        for index, name in enumerate(ODD_STRINGS):
            record = store.records.get(name)
            assert record is not None
            assert (record.name, record.value) == (name, b"%d" % index)

    def test_the_largest_records_fit_into_one_append(self, store: Store) -> None:
        name = "n" * (limits.MAX_NAME_BYTES - 4)
        value = bytes(range(256)) * (limits.MAX_VALUE_BYTES // 256)
        changes = [Put(f"{name}{number:04}", value, 0) for number in range(limits.MAX_RECORDS)]
        placed = store.append(events("Happened"), records=changes)
        assert len(placed.revisions) == limits.MAX_RECORDS
        assert [(record.name, record.value) for record in store.records.list()] == [
            (one.name, value) for one in changes
        ]

    def test_a_list_has_the_names_with_the_prefix_in_order(self, store: Store) -> None:
        names = ["a", "a/", "a/1", "a/10", "a/2", "a/\U0010ffff", "a/\U0010ffff\U0010ffff", "a0", "b", "B", "\ud7ff1"]
        for name in names:
            store.records.put(name, b"", expected=0)
        for prefix in ("", "a", "a/", "a/1", "a/\U0010ffff", "B", "\ud7ff", "c", "a/1x"):
            expected = sorted(name for name in names if name.startswith(prefix))
            assert [record.name for record in store.records.list(prefix)] == expected

    def test_a_list_may_be_longer_than_a_page(self, store: Store) -> None:
        names = [f"name/{number:04}" for number in range(300)]
        for start in range(0, len(names), limits.MAX_RECORDS):
            changes = [Put(name, name.encode(), 0) for name in reversed(names[start : start + limits.MAX_RECORDS])]
            store.append([], records=changes)
        listed = list(store.records.list("name/"))
        assert [(record.name, record.value) for record in listed] == [(name, name.encode()) for name in names]

    def test_records_are_stored_with_the_events_of_their_append(self, store: Store, again: Store) -> None:
        kept = store.records.put("kept", b"0", expected=0)
        gone = store.records.put("gone", b"0", expected=0)
        changes: list[Put | Delete] = [Put("kept", b"1", kept.revision), Delete("gone", gone.revision)]
        changes.append(Put("new", b"2", 0))
        placed = store.append(events("Happened", count=2), records=changes)
        assert positions(again.read()) == [placed.first, placed.last]
        new = again.records.get("new")
        assert new is not None
        assert placed.revisions == (kept.revision + 1, 0, new.revision)
        assert {record.name: record.value for record in again.records.list()} == {"kept": b"1", "new": b"2"}

    def test_one_record_that_has_changed_refuses_the_whole_append(self, store: Store) -> None:
        one = store.records.put("one", b"0", expected=0)
        two = store.records.put("two", b"0", expected=0)
        changes = [Put("one", b"1", one.revision), Put("three", b"", 0), Delete("two", two.revision + 1)]
        refusal = changed(store, events("Happened"), checkpoint=("name", 7), records=changes)
        assert (refusal.name, refusal.expected, refusal.current) == ("two", two.revision + 1, two)
        assert store.head() == 0
        assert store.checkpoint("name") == 0
        assert list(store.records.list()) == [one, two]

    def test_records_alone_are_an_append_of_no_events(self, store: Store) -> None:
        head = store.append(events("Happened")).last
        placed = store.append([], records=[Put("name", b"", 0)])
        assert (placed.first, placed.last, len(placed.revisions)) == (head, head, 1)
        assert store.head() == head

    def test_records_are_judged_after_conditions(self, store: Store) -> None:
        store.append(events("Happened", "tag"))
        condition_fails(store, events("Happened"), no_new(tagged("tag")), records=[Put("name", b"", 9)])
        condition_fails(store, [], no_new(tagged("tag")), records=[Put("name", b"", 0)])
        assert store.records.get("name") is None

    def test_an_append_that_is_stored_already_changes_no_records(self, store: Store) -> None:
        identified = [Event("Happened", tags={"tag"}, id=uuid4())]
        first = store.append(identified, records=[Put("name", b"1", 0)])
        assert len(first.revisions) == 1
        again = Placed(first.first, first.last, already=True)
        for value in (b"1", b"2"):
            assert store.append(identified, records=[Put("name", value, first.revisions[0])]) == again
        assert store.append(events("Other"), unless=tagged("tag"), records=[Delete("name", 5)]) == again
        assert store.records.get("name") == Record("name", b"1", first.revisions[0])

    def test_a_checkpoint_that_does_not_grow_leaves_the_records_alone(self, store: Store) -> None:
        store.append([], checkpoint=("name", 5))
        with pytest.raises(CheckpointBehind):
            store.append([], checkpoint=("name", 5), records=[Put("name", b"", 0)])
        assert store.records.get("name") is None

    def test_a_checkpoint_and_a_record_of_the_same_name_are_two(self, store: Store) -> None:
        record = store.append([], checkpoint=("name", 5), records=[Put("name", b"record", 0)])
        assert store.checkpoint("name") == 5
        assert store.records.get("name") == Record("name", b"record", record.revisions[0])
        assert store.records.get("checkpoints/name") is None
        assert store.checkpoint("records/name") == 0
        store.records.delete("name", expected=record.revisions[0])
        assert store.checkpoint("name") == 5

    def test_changes_of_one_group_commit_are_judged_in_their_order(self, store: Store) -> None:
        first = store.records.put("name", b"0", expected=0).revision
        expectations = [first, first, first + 1, 0, first + 2]
        appends = [
            Append(tuple(events("Happened")), records=(Put("name", b"%d" % number, expected),))
            for number, expected in enumerate(expectations)
        ]
        verdicts = engine_beneath(store).commit(appends)
        assert [isinstance(verdict, Placed) for verdict in verdicts] == [True, False, True, False, True]
        assert store.records.get("name") == Record("name", b"4", first + 3)
        assert len(list(store.read())) == 3

    def test_of_n_racers_with_the_same_revision_exactly_one_wins(self, store: Store, again: Store) -> None:
        revision = 0
        for _ in range(10):
            outcomes = race([store, again] * 4, events("Won"), records=[Put("lease", b"mine", revision)])
            winners = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
            losers = [outcome for outcome in outcomes if isinstance(outcome, RecordChanged)]
            assert (len(winners), len(losers)) == (1, 7)
            (revision,) = winners[0].revisions
            assert {loser.current for loser in losers} == {Record("lease", b"mine", revision)}
        assert types(store.read()) == ["Won"] * 10

    def test_a_counter_that_many_writers_increment_loses_no_increment(self, store: Store, again: Store) -> None:
        store.records.put("counter", b"0", expected=0)

        def increment(handle: Store) -> int:
            tries = 0
            for _ in range(10):
                while True:
                    tries += 1
                    record = handle.records.get("counter")
                    assert record is not None
                    try:
                        handle.records.put("counter", b"%d" % (int(record.value) + 1), expected=record.revision)
                        break
                    except RecordChanged:
                        continue
            return tries

        together(*[partial(increment, handle) for handle in [store, again] * 2])
        record = store.records.get("counter")
        assert record is not None
        assert record.value == b"40"

    def test_racers_that_create_and_delete_never_both_succeed(self, store: Store, again: Store) -> None:
        for _ in range(5):
            created = race([store, again] * 2, [], records=[Put("lock", b"", 0)])
            (winner,) = [outcome for outcome in created if isinstance(outcome, Placed)]
            deleted = race([store, again] * 2, [], records=[Delete("lock", winner.revisions[0])])
            assert sum(isinstance(outcome, Placed) for outcome in deleted) == 1

    def test_of_two_changes_between_check_and_commit_one_is_refused(self, store: Store, again: Store) -> None:
        seen = store.records.put("name", b"seen", expected=0).revision
        rivals: list[Running[Placed | AppendRefused]] = []

        def rival() -> None:
            change = partial(again.append, events("rival"), records=[Put("name", b"rival", seen)])
            rivals.append(Running(partial(attempt, change)))
            rivals[0].ended(BLOCKED_S)

        with self.overtaken(store, rival) as late:
            own = attempt(partial(late.append, events("own"), records=[Put("name", b"own", seen)]))
        outcomes = {b"own": own, b"rival": rivals[0].result()}
        (winner,) = [value for value, outcome in outcomes.items() if isinstance(outcome, Placed)]
        (loser,) = [outcome for outcome in outcomes.values() if isinstance(outcome, RecordChanged)]
        assert loser.current == store.records.get("name") == Record("name", winner, seen + 1)
        assert types(store.read()) == [winner.decode()]

    def test_a_reader_never_sees_an_append_without_its_record(self, store: Store, again: Store) -> None:
        rounds = 30

        def write() -> None:
            revision = 0
            for number in range(1, rounds + 1):
                placed = store.append([Event("Counted")], records=[Put("count", b"%d" % number, revision)])
                (revision,) = placed.revisions

        def watch() -> None:
            count = 0
            while count < rounds:
                before = len(list(again.read()))
                record = again.records.get("count")
                count = 0 if record is None else int(record.value)
                assert before <= count <= len(list(again.read()))

        together(write, watch)

    def test_an_error_before_the_commit_changes_no_record(self, store: Store) -> None:
        engine, faulty = self.faulty(store)

        engine.before = once(raising(StoreUnavailable("injected")))
        with pytest.raises(StoreUnavailable, match="injected"):
            faulty.records.put("name", b"", expected=0)
        assert store.records.get("name") is None
        assert isinstance(attempt(partial(faulty.append, [], records=[Put("name", b"", 0)])), Placed)

    def test_an_error_of_the_storage_is_not_taken_for_a_record_that_does_not_exist(self, store: Store) -> None:
        engine, faulty = self.faulty(store)
        for read in (lambda: faulty.records.get("name"), lambda: list(faulty.records.list())):
            engine.before_scan = once(raising(StoreUnavailable("injected")))
            with pytest.raises(StoreUnavailable, match="injected"):
                read()

    def test_a_decision_can_depend_on_events_and_a_record(self, store: Store, again: Store) -> None:
        lease = store.records.put("lease", b"mine", expected=0)
        head = store.append(events("Started", "job:1")).last
        again.append(events("Done", "job:1"))
        outcome = attempt(
            partial(
                store.append,
                events("Done", "job:1"),
                no_new(tagged("job:1"), head),
                records=[Delete("lease", lease.revision)],
            )
        )
        assert isinstance(outcome, ConditionFailed)
        assert store.records.get("lease") == lease
