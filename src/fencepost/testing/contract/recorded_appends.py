"""For engines that keep the conditions of appends: each is there exactly when its events are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from uuid import uuid4

import pytest
from msgspec.structs import replace

from ...core.verdicts import Append
from ...errors import InvalidInput
from ...model import AppendCondition, Event, Placed, Query, RecordedAppend, encode_conditions
from ...store import EventStore, engine_of, recorded, restore
from .base import attempt, condition_fails, events, no_new, tagged, together, typed


class RecordingContract:
    """`open_recording` binds an engine to the suite."""

    def open_recording(self) -> EventStore:
        """A new, empty store, opened with `record_conditions=True`."""
        raise NotImplementedError("a subclass of the contract says how to open a new, empty store that records")

    @pytest.fixture
    def recording(self) -> Iterator[EventStore]:
        with closing(self.open_recording()) as store:
            yield store

    def test_an_append_is_kept_with_all_that_it_was_conditional_on(self, recording: EventStore) -> None:
        head = recording.append(events("Opened", "wallet:1", count=3)).last
        conditions = [no_new(tagged("wallet:1"), head), no_new(typed("A", "B") | tagged("x", "y"), 2**96 - 1)]
        placed = recording.append(events("Paid", "wallet:1", count=2), conditions, unless=tagged("command:7"))
        blind, kept = recorded(recording)
        assert (blind.last, blind.conditions, blind.unless) == (head, (), None)
        assert (kept.first, kept.last) == (placed.first, placed.last)
        assert list(kept.conditions) == conditions
        assert kept.unless == tagged("command:7")

    def test_what_is_refused_or_there_already_leaves_no_record(self, recording: EventStore) -> None:
        identified = [Event("Opened", tags={"wallet:1"}, id=uuid4())]
        recording.append(identified)
        condition_fails(recording, events("Opened"), no_new(tagged("wallet:1")))
        assert recording.append(identified).already
        assert recording.append(events("Opened"), unless=tagged("wallet:1")).already
        recording.append([], no_new(tagged("wallet:2")), checkpoint=("consumer", 1))
        assert len(list(recorded(recording))) == 1

    def test_the_appends_of_one_group_commit_are_kept_one_by_one(self, recording: EventStore) -> None:
        condition = no_new(tagged("wallet:1"))
        appends = [
            Append(tuple(events("Opened", "wallet:1", count=2)), (condition,)),
            Append(tuple(events("Opened", "wallet:1")), (condition,)),
            Append(tuple(events("Other", "wallet:2")), (no_new(tagged("wallet:2")),)),
            Append((), checkpoint=("consumer", 5)),
        ]
        first, refused, third, _ = engine_of(recording).commit(appends)
        assert isinstance(first, Placed)
        assert not isinstance(refused, Placed)
        assert isinstance(third, Placed)
        assert [(append.first, append.last) for append in recorded(recording)] == [
            (first.first, first.last),
            (third.first, third.last),
        ]

    def test_a_range_holds_the_appends_that_end_in_it(self, recording: EventStore) -> None:
        one, two, three = (recording.append(events("A", count=3)) for _ in range(3))
        assert [append.last for append in recorded(recording, after=one.last)] == [two.last, three.last]
        assert [append.last for append in recorded(recording, after=one.last, up_to=two.last)] == [two.last]
        assert [append.last for append in recorded(recording, up_to=two.last - 1)] == [one.last]
        assert list(recorded(recording, after=three.last)) == []

    def test_more_appends_than_fit_into_a_page_come_in_order(self, recording: EventStore) -> None:
        appends = [
            Append((Event("A", tags={f"n:{number}"}),), (no_new(tagged(f"n:{number}")),)) for number in range(2_100)
        ]
        for start in range(0, len(appends), 700):
            engine_of(recording).commit(appends[start : start + 700])
        kept = list(recorded(recording))
        assert [append.conditions for append in kept] == [append.conditions for append in appends]
        assert [append.last for append in kept] == [event.position for event in recording.read()]

    def test_a_large_append_is_kept_as_one(self, recording: EventStore) -> None:
        placed = recording.append(events("A", count=9_000), no_new(typed("B")))
        (kept,) = recorded(recording)
        assert (kept.first, kept.last) == (placed.first, placed.last)
        assert kept.conditions == (no_new(typed("B")),)

    def test_strings_of_any_kind_are_kept(self, recording: EventStore) -> None:
        query = Query.of(types={'quote"', "back\\slash"}, tags={"emoji:🦊", "new\nline", "'", "{}"})
        recording.append(events("A"), AppendCondition(query, after=7), unless=query)
        (kept,) = recorded(recording)
        assert kept.conditions == (AppendCondition(query, after=7),)
        assert kept.unless == query


class SharedRecordingContract(RecordingContract):
    """The same for a store that several handles share, some of which record."""

    def open_silent(self) -> EventStore:
        """Another handle on the same store, without the option."""
        raise NotImplementedError("a subclass of the contract says how to open the store again")

    @pytest.fixture
    def silent(self, recording: EventStore) -> Iterator[EventStore]:
        with closing(self.open_silent()) as store:
            yield store

    def test_appends_of_handles_that_do_not_record_have_no_record(
        self, recording: EventStore, silent: EventStore
    ) -> None:
        one = recording.append(events("A"))
        silent.append(events("A"), no_new(tagged("x")))
        three = recording.append(events("A"))
        for handle in (recording, silent):
            assert [append.last for append in recorded(handle)] == [one.last, three.last]

    def test_racing_appends_are_each_kept_once(self, recording: EventStore, silent: EventStore) -> None:
        tries = [
            partial(attempt, partial(handle.append, events("A", f"n:{number % 5}"), no_new(tagged(f"n:{number % 5}"))))
            for number, handle in enumerate([recording] * 10 + [silent] * 10)
        ]
        placed = {one.first for one in together(*tries) if isinstance(one, Placed)}
        kept = list(recorded(recording))
        assert {append.first for append in kept} <= placed
        assert len(placed) == 5
        assert all(append.first == append.last for append in kept)


class RestoringContract:
    """For engines that can take a log over; `open_store` gives a new, empty store at each call."""

    def open_store(self) -> EventStore:
        raise NotImplementedError("a subclass of the contract says how to open a new, empty store")

    @pytest.fixture
    def source(self) -> Iterator[EventStore]:
        with closing(self.open_store()) as store:
            for number in range(20):
                store.append([Event("A", data=b"\0%d" % number, tags={f"n:{number}", "all"}, id=uuid4())])
            store.append(
                [Event("B", metadata={"by": "ada", "c": "ü"}), Event("B", tags={f"many:{n}" for n in range(9)})]
            )
            yield store

    @pytest.fixture
    def target(self) -> Iterator[EventStore]:
        with closing(self.open_store()) as store:
            yield store

    def test_events_come_back_with_positions_times_and_ids(self, source: EventStore, target: EventStore) -> None:
        log = list(source.read())
        restore(target, log[:7])
        restore(target, log[7:])
        assert list(target.read()) == log
        assert list(target.read(tagged("all"), backwards=True)) == list(source.read(tagged("all"), backwards=True))
        assert list(target.read(tagged("many:8"))) == log[-1:]

    def test_a_restored_store_judges_as_the_original_does(self, source: EventStore, target: EventStore) -> None:
        log = list(source.read())
        restore(target, log)
        for store in (source, target):
            assert condition_fails(store, events("C"), no_new(tagged("n:5"), after=5)).conflict == log[5]
            assert store.append([log[3].event]) == Placed(log[3].position, log[3].position, already=True)
            assert store.append(events("C"), no_new(tagged("n:5"), after=6)).first == log[-1].position + 1

    def test_subscribers_are_told(self, source: EventStore, target: EventStore) -> None:
        with target.subscribe(timeout_s=60) as subscription:
            restore(target, list(source.read()))
            assert next(subscription).position == 1

    def test_recorded_appends_come_along(self, source: EventStore, target: EventStore) -> None:
        log = list(source.read())
        kept = [RecordedAppend(log[0].position, log[4].position, encode_conditions([no_new(tagged("x"))]), None)]
        kept.append(RecordedAppend(log[5].position, log[6].position, "[]", tagged("y").to_json()))
        restore(target, log[:5], kept[:1])
        restore(target, log[5:], kept[1:])
        assert list(recorded(target)) == kept

    def test_nothing_at_all_is_restored_to_nothing(self, target: EventStore) -> None:
        restore(target, [])
        assert target.head() == 0

    def test_events_that_do_not_follow_on_the_head_are_refused(self, source: EventStore, target: EventStore) -> None:
        log = list(source.read())
        restore(target, log[:5])
        for wrong in (log[:5], log[6:], log[4:6], [log[5], log[7]], [log[6], log[5]]):
            with pytest.raises(InvalidInput, match="position"):
                restore(target, wrong)
        assert list(target.read()) == log[:5]
        restore(target, log[5:])

    def test_ids_that_are_stored_are_refused(self, source: EventStore, target: EventStore) -> None:
        log = list(source.read())
        restore(target, log[:5])
        (twin,) = source.read(up_to=1)
        twin = replace(twin, position=6)
        with pytest.raises(InvalidInput, match="id"):
            restore(target, [twin])
        log[6] = replace(log[6], raw_id=log[5].id)
        with pytest.raises(InvalidInput, match=r"events\[1\].id"):
            restore(target, log[5:7])
        assert target.head() == 5

    @pytest.mark.parametrize(
        ("name", "value", "field"),
        [("type", "", "type"), ("raw_tags", frozenset({"\0"}), "tags"), ("data", "text", "data"), ("raw_id", 7, "id")],
    )
    def test_what_no_store_can_hold_is_refused_by_name(
        self, source: EventStore, target: EventStore, name: str, value: object, field: str
    ) -> None:
        log = list(source.read())
        log[2] = replace(log[2], **{name: value})
        with pytest.raises(InvalidInput, match=rf"events\[2\].{field}"):
            restore(target, log)
        assert target.head() == 0

    @pytest.mark.parametrize(
        "kept",
        [
            [RecordedAppend(1, 9_999)],
            [RecordedAppend(3, 2)],
            [RecordedAppend(0, 2)],
            [RecordedAppend(1, 3), RecordedAppend(2, 4)],
            [RecordedAppend(1, 2, "{")],
            [RecordedAppend(1, 2, '[{"after": 3}]')],
            [RecordedAppend(1, 2, "[]", "[]")],
        ],
    )
    def test_recorded_appends_that_make_no_sense_are_refused(
        self, source: EventStore, target: EventStore, kept: list[RecordedAppend]
    ) -> None:
        with pytest.raises(InvalidInput, match=r"appends\[\d\]"):
            restore(target, source.read(), kept)
        assert target.head() == 0
