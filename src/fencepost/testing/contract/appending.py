"""Appending: all or nothing, in commit order; ids, `unless` and checkpoints."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from ...core.verdicts import Append
from ...errors import CheckpointBehind, IdsOverlap
from ...model import MAX_POSITION, AppendCondition, Event, Placed, Query
from ..stores import Store, engine_beneath
from .base import (
    Contract,
    attempt,
    condition_fails,
    contents,
    events,
    no_new,
    positions,
    race,
    tagged,
    together,
    typed,
    types,
)


def identified(*ids: UUID, tag: str = "tag") -> list[Event]:
    return [Event("Identified", tags={tag}, id=id) for id in ids]


class Appending(Contract):
    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.head() == 0
        assert list(store.read()) == []
        assert store.checkpoint("any") == 0

    def test_positions_grow_from_append_to_append(self, store: Store) -> None:
        placed = [store.append(events("Happened", count=count)) for count in (1, 3, 1)]
        assert 0 < placed[0].first == placed[0].last < placed[1].first < placed[1].last < placed[2].first
        assert store.head() == placed[-1].last
        found = positions(store.read())
        assert found == sorted(found)
        assert [(one.first, one.last) for one in placed] == [(found[n], found[m]) for n, m in ((0, 0), (1, 3), (4, 4))]
        if self.gapless:
            assert found == [1, 2, 3, 4, 5]

    def test_a_refused_append_takes_no_positions_where_they_are_gapless(self, store: Store) -> None:
        store.append(events("Happened"))
        for _ in range(3):
            condition_fails(store, events("Happened", count=5), no_new(Query.all()))
        store.append(events("Happened"))
        assert len(list(store.read())) == 2
        if self.gapless:
            assert positions(store.read()) == [1, 2]

    def test_events_are_stored_in_the_order_of_their_append(self, store: Store) -> None:
        given = [Event(f"Type{number}", data=bytes([number])) for number in (3, 1, 2, 0)]
        store.append(iter(given))
        assert contents(store.read()) == given

    def test_events_are_stored_with_the_time_of_their_recording(self, store: Store) -> None:
        before = datetime.now(timezone.utc)
        store.append(events("Happened", count=2))
        after = datetime.now(timezone.utc)
        slack = timedelta(minutes=5)  # a store on another machine has another clock
        for event in store.read():
            assert before - slack <= event.recorded_at <= after + slack
            assert event.recorded_at.utcoffset() == timedelta(0)

    def test_appends_of_many_threads_are_each_stored_whole_and_once(self, store: Store, again: Store) -> None:
        def write(handle: Store, writer: int) -> list[Placed]:
            return [handle.append(events("Happened", f"append:{writer}:{n}", count=3)) for n in range(10)]

        placed = together(*[partial(write, handle, writer) for writer, handle in enumerate([store, again] * 4)])
        log = list(store.read())
        assert len(log) == 8 * 10 * 3
        for start in range(0, len(log), 3):
            assert len({event.tags for event in log[start : start + 3]}) == 1
            assert [event.data for event in log[start : start + 3]] == [b"0", b"1", b"2"]
        firsts_and_lasts = sorted((one.first, one.last) for of_writer in placed for one in of_writer)
        assert firsts_and_lasts == [(log[n].position, log[n + 2].position) for n in range(0, len(log), 3)]
        assert all(one.last < two.first for of_writer in placed for one, two in pairwise(of_writer))

    def test_an_append_is_visible_through_every_handle_once_it_returns(self, store: Store, again: Store) -> None:
        for writer, reader in [(store, again), (again, store), (store, store)]:
            placed = writer.append(events("Happened", "tag"))
            assert reader.head() >= placed.last
            assert positions(reader.read(tagged("tag"), after=placed.first - 1)) == [placed.first]
            condition_fails(reader, events("Decided", "tag"), no_new(tagged("tag"), placed.first - 1))

    def test_several_conditions_that_hold_are_no_obstacle(self, store: Store) -> None:
        seen = store.append(events("A", "tag")).last
        conditions = (no_new(tagged("tag"), seen), no_new(typed("B")), no_new(Query.all(), seen))
        assert store.append(events("B", "tag"), conditions).first > seen

    def test_an_empty_list_of_conditions_is_no_condition(self, store: Store) -> None:
        store.append(events("A"))
        assert not store.append(events("A"), []).already

    def test_unless_writes_when_nothing_matches(self, store: Store) -> None:
        store.append(events("Other", "command:2"))
        placed = store.append(events("Done", "command:1"), unless=tagged("command:1"))
        assert not placed.already
        assert types(store.read(tagged("command:1"))) == ["Done"]

    def test_unless_finds_the_first_match_and_writes_nothing(self, store: Store) -> None:
        store.append(events("Other"))
        first = store.append(events("Done", "command:1", count=2))
        head = store.append(events("Done", "command:1")).last
        placed = store.append(events("Done", "command:1"), unless=tagged("command:1"), checkpoint=("name", 7))
        assert placed == Placed(first.first, first.first, already=True)
        assert store.head() == head
        assert store.checkpoint("name") == 0

    def test_unless_comes_before_the_conditions(self, store: Store) -> None:
        done = store.append(events("Done", "command:1", "seat:1"))
        placed = store.append(events("Done", "command:1"), no_new(tagged("seat:1")), unless=tagged("command:1"))
        assert placed == Placed(done.first, done.first, already=True)

    def test_unless_sees_what_was_stored_before_any_condition_looks(self, store: Store) -> None:
        done = store.append(events("Done", "command:1"))
        later = store.append(events("Other", count=10)).last
        condition = AppendCondition(tagged("command:1"), after=later)
        assert store.append(events("Done"), condition, unless=tagged("command:1")).first == done.first

    def test_unless_racing_with_itself_writes_once(self, store: Store, again: Store) -> None:
        placed = race([store, again] * 6, events("Done", "command:1"), unless=tagged("command:1"))
        assert sum(not one.already for one in placed) == 1
        assert {one.first for one in placed} == set(positions(store.read()))

    def test_unless_in_one_group_commit_sees_what_stands_before_it(self, store: Store) -> None:
        append = Append(tuple(events("Done", "command:1")), unless=tagged("command:1"))
        first, second = engine_beneath(store).commit([append, append])
        assert isinstance(first, Placed)
        assert second == Placed(first.first, first.first, already=True)
        assert store.head() == first.last

    def test_ids_are_read_as_they_were_given(self, store: Store) -> None:
        ids = [UUID(int=0), UUID(int=2**128 - 1), uuid4()]
        store.append(identified(*ids))
        store.append(events("Nameless"))
        assert [event.id for event in store.read()] == [*ids, None]

    def test_the_same_ids_again_give_the_first_positions(self, store: Store) -> None:
        retried = identified(uuid4(), uuid4(), uuid4())
        first = store.append(retried, no_new(tagged("tag")))
        head = store.append(events("Other", "tag")).last
        again = store.append(retried, no_new(tagged("tag")))
        assert again == Placed(first.first, first.last, already=True)
        assert store.head() == head

    def test_the_same_ids_again_move_no_checkpoint_and_meet_no_other_obstacle(self, store: Store) -> None:
        retried = identified(uuid4())
        first = store.append(retried, checkpoint=("name", 5))
        again = store.append(retried, no_new(Query.all()), unless=typed("Identified"), checkpoint=("name", 5))
        assert again == Placed(first.first, first.last, already=True)
        assert store.checkpoint("name") == 5

    def test_some_of_the_ids_again_are_refused(self, store: Store) -> None:
        one, two, three = uuid4(), uuid4(), uuid4()
        placed = store.append(identified(one, two))
        for overlapping in ([three, one], [one, three], [two, one, three]):
            with pytest.raises(IdsOverlap) as refused:
                store.append(identified(*overlapping))
            assert refused.value.stored in {one, two}
            assert placed.first <= refused.value.position <= placed.last
            assert refused.value.missing == three
        assert store.head() == placed.last

    def test_ids_that_were_stored_through_different_handles_are_all_known(self, store: Store, again: Store) -> None:
        one, two = uuid4(), uuid4()
        first, second = store.append(identified(one)), again.append(identified(two))
        for handle in (store, again):
            assert handle.append(identified(one, two)) == Placed(first.first, second.last, already=True)

    def test_an_append_with_new_ids_is_judged_like_any_other(self, store: Store) -> None:
        store.append(identified(uuid4()))
        refused = identified(uuid4())
        condition_fails(store, refused, no_new(tagged("tag")))
        assert not store.append(refused).already

    def test_the_same_ids_racing_are_stored_once(self, store: Store, again: Store) -> None:
        retried = identified(uuid4(), uuid4())
        placed = race([store, again] * 6, retried)
        assert sum(not one.already for one in placed) == 1
        assert len({(one.first, one.last) for one in placed}) == 1
        assert [event.id for event in store.read()] == [event.id for event in retried]

    def test_the_same_ids_in_one_group_commit_are_stored_once(self, store: Store) -> None:
        one, two, three = uuid4(), uuid4(), uuid4()
        both = Append(tuple(identified(one, two)))
        half = Append(tuple(identified(two, three)))
        first, second, third = engine_beneath(store).commit([both, both, half])
        assert isinstance(first, Placed)
        assert second == Placed(first.first, first.last, already=True)
        assert not isinstance(third, Placed)
        assert [event.id for event in store.read()] == [one, two]

    def test_a_checkpoint_is_stored_with_its_events(self, store: Store, again: Store) -> None:
        store.append(events("Happened"), checkpoint=("name", 5))
        assert (store.checkpoint("name"), again.checkpoint("name")) == (5, 5)
        again.append(events("Happened"), checkpoint=("name", 6))
        assert (store.checkpoint("name"), again.checkpoint("name")) == (6, 6)
        assert store.checkpoint("other") == 0

    @pytest.mark.parametrize("position", [0, 4, 5])
    def test_a_checkpoint_must_grow(self, store: Store, position: int) -> None:
        head = store.append(events("Happened"), checkpoint=("name", 5)).last
        with pytest.raises(CheckpointBehind) as refused:
            store.append(events("Happened"), checkpoint=("name", position))
        assert (refused.value.name, refused.value.position, refused.value.current) == ("name", position, 5)
        assert store.head() == head
        assert store.checkpoint("name") == 5

    def test_a_checkpoint_may_be_any_position(self, store: Store) -> None:
        for position in (2**31, 2**63 - 1, 2**63, MAX_POSITION):
            store.append([], checkpoint=("name", position))
            assert store.checkpoint("name") == position

    def test_a_checkpoint_alone_is_an_append_of_no_events(self, store: Store) -> None:
        assert store.append([], checkpoint=("name", 1)) == Placed(0, 0)
        head = store.append(events("Happened")).last
        assert store.append([], checkpoint=("name", 2)) == Placed(head, head)
        assert store.head() == head
        assert store.checkpoint("name") == 2

    def test_a_checkpoint_is_not_moved_when_a_condition_fails(self, store: Store) -> None:
        store.append(events("Happened", "tag"))
        condition_fails(store, [], no_new(tagged("tag")), checkpoint=("name", 2))
        assert store.checkpoint("name") == 0

    def test_a_condition_is_judged_before_the_checkpoint(self, store: Store) -> None:
        store.append(events("Happened", "tag"), checkpoint=("name", 5))
        condition_fails(store, events("Happened"), no_new(tagged("tag")), checkpoint=("name", 5))

    def test_checkpoints_of_one_group_commit_are_judged_in_their_order(self, store: Store) -> None:
        appends = [Append(tuple(events("Happened")), checkpoint=("name", position)) for position in (2, 1, 3, 3)]
        verdicts = engine_beneath(store).commit(appends)
        assert [isinstance(verdict, Placed) for verdict in verdicts] == [True, False, True, False]
        assert store.checkpoint("name") == 3
        assert len(list(store.read())) == 2

    def test_one_of_the_racing_appends_moves_a_checkpoint_alone(self, store: Store, again: Store) -> None:
        for position in range(1, 31):
            outcomes = race([store, again] * 2, [], checkpoint=("name", position))
            assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 1
            assert store.checkpoint("name") == again.checkpoint("name") == position


class Consumers(Contract):
    def test_23_appends_with_conditions_in_opposite_order_never_fail_for_that(self, store: Store, again: Store) -> None:
        one, two = typed("One"), tagged("two")

        def write(handle: Store, *queries: Query) -> int:
            for _ in range(15):
                head = handle.head()
                conditions = [no_new(query, head) for query in queries]
                attempt(partial(handle.append, events("One", "two"), conditions))
            return 15

        assert together(partial(write, store, one, two), partial(write, again, two, one)) == [15, 15]
        assert len(list(store.read())) >= 15

    def test_24_a_command_twice_at_once_is_done_once(self, store: Store, again: Store) -> None:
        def handle(handle: Store) -> Placed:
            head = handle.read(tagged("seat:1")).head
            ordered = events("Reserved", "seat:1", "command:7")
            return handle.append(ordered, no_new(tagged("seat:1"), head), unless=tagged("command:7"))

        outcomes = together(*[partial(attempt, partial(handle, one)) for one in [store, again] * 3])
        written = [one for one in outcomes if isinstance(one, Placed) and not one.already]
        assert len(written) == 1
        assert positions(store.read()) == [written[0].first]

    def test_24_a_command_again_after_its_handler_crashed_is_done_once(self, store: Store, again: Store) -> None:
        done = store.append(events("Reserved", "seat:1", "command:7"), unless=tagged("command:7"))
        # The handler dies before it has answered; another handler gets the same command.
        repeated = again.append(events("Reserved", "seat:1", "command:7"), unless=tagged("command:7"))
        assert repeated == Placed(done.first, done.first, already=True)
        assert positions(store.read()) == [done.first]

    def test_27_an_effect_in_the_store_happens_once_however_often_its_consumer_crashes(
        self, store: Store, again: Store
    ) -> None:
        store.append(events("Ordered", count=5))

        def consume(handle: Store, crash_after: int) -> None:
            after = handle.checkpoint("shipping")
            for handled, event in enumerate(handle.read(typed("Ordered"), after=after)):
                if handled == crash_after:
                    return
                shipped = Event("Shipped", data=b"%d" % event.position)
                handle.append([shipped], checkpoint=("shipping", event.position))

        for crash_after in (0, 2, 1, 5):
            consume(again if crash_after % 2 else store, crash_after)
        ordered = positions(store.read(typed("Ordered")))
        assert [int(event.data) for event in store.read(typed("Shipped"))] == ordered
        assert store.checkpoint("shipping") == ordered[-1]

    def test_27_of_two_consumers_at_the_same_event_only_one_has_the_effect(self, store: Store, again: Store) -> None:
        ordered = store.append(events("Ordered")).first
        outcomes = race([store, again] * 3, events("Shipped"), checkpoint=("shipping", ordered))
        assert sum(isinstance(one, Placed) for one in outcomes) == 1
        assert sum(isinstance(one, CheckpointBehind) for one in outcomes) == 5
        assert types(store.read()) == ["Ordered", "Shipped"]
