"""Conflicts missed: a decision whose ground has moved must be refused, however the two raced."""

from __future__ import annotations

from functools import partial

import pytest

from ...buckets import matches
from ...core.verdicts import Append, Conflict
from ...errors import ConditionFailed
from ...model import AppendCondition, Event, Placed, Query, QueryItem
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
    typed,
    types,
)

# Three ways to name the same events: by their tag, by their type, by nothing at all.
WAYS = {"tags and no types": tagged("seat:1"), "types and no tags": typed("Reserved"), "neither": Query.all()}


class ConflictsMissed(Contract):
    def test_01_of_n_racers_with_the_same_stale_condition_exactly_one_wins(self, store: Store, again: Store) -> None:
        seat = tagged("seat:1")
        seen = store.append(events("Added", "seat:1")).last
        outcomes = race([store, again] * 8, events("Reserved", "seat:1"), no_new(seat, seen))
        winners = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, ConditionFailed)]
        assert (len(winners), len(losers)) == (1, 15)
        assert {loser.conflict.position for loser in losers} == {winners[0].first}
        assert types(store.read(seat)) == ["Added", "Reserved"]

    def test_02_a_stale_condition_fails_while_an_older_write_transaction_is_open(
        self, store: Store, again: Store
    ) -> None:
        seen = store.append(events("Added", "seat:1")).last
        with self.older_transaction():
            winner = again.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen))
            failed = condition_fails(store, events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen))
            assert failed.conflict.position == winner.first

    def test_03_a_stale_condition_fails_although_its_append_began_before_the_winner(
        self, store: Store, again: Store
    ) -> None:
        seen = store.append(events("Added", "seat:1")).last
        won: list[Placed] = []

        def win() -> None:
            with self.older_transaction():
                won.append(again.append(events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen)))

        engine, late = self.faulty(store)
        engine.before = win
        failed = condition_fails(late, events("Reserved", "seat:1"), no_new(tagged("seat:1"), seen))
        assert failed.conflict.position == won[0].first

    @pytest.mark.parametrize(
        "conflict",
        [Event("A", tags={"1"}), Event("B", tags={"2", "more"}), Event("C", tags={"any"}), Event("D", tags={"3", "4"})],
        ids=lambda event: event.type,
    )
    def test_04_a_conflict_that_matches_only_one_of_several_items_is_found(self, store: Store, conflict: Event) -> None:
        query = Query(
            [
                QueryItem(types={"A"}, tags={"1"}),
                QueryItem(types={"B"}, tags={"2"}),
                QueryItem(types={"C"}),
                QueryItem(tags={"3", "4"}),
            ]
        )
        placed = store.append([conflict])
        assert condition_fails(store, [Event("Decided")], no_new(query)).conflict.position == placed.first

    @pytest.mark.parametrize("flattened", [Event("A", tags={"2"}), Event("B", tags={"1"}), Event("D", tags={"1", "2"})])
    def test_04_an_event_that_only_mixes_the_items_is_no_conflict(self, store: Store, flattened: Event) -> None:
        store.append([flattened])
        query = Query([QueryItem(types={"A"}, tags={"1"}), QueryItem(types={"B"}, tags={"2"})])
        assert not store.append([Event("Decided")], no_new(query)).already

    @pytest.mark.parametrize("way", WAYS)
    def test_05_a_stale_condition_with(self, store: Store, way: str) -> None:
        seen = store.append(events("Reserved", "seat:1")).last
        winner = store.append(events("Reserved", "seat:1"), no_new(WAYS[way], seen))
        failed = condition_fails(store, events("Reserved", "seat:1"), no_new(WAYS[way], seen))
        assert failed.conflict.position == winner.first
        assert failed.condition == no_new(WAYS[way], seen)

    @pytest.mark.parametrize("way", WAYS)
    def test_05_racing_stale_conditions_with(self, store: Store, again: Store, way: str) -> None:
        for _ in range(5):
            seen = store.head()
            outcomes = race([store, again] * 3, events("Reserved", "seat:1"), no_new(WAYS[way], seen))
            assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 1
            assert sum(isinstance(outcome, ConditionFailed) for outcome in outcomes) == 5

    def test_06_of_two_different_overlapping_conditions_at_most_one_commits(self, store: Store, again: Store) -> None:
        for number in range(20):
            ward = f"ward:{number}"
            seen = store.append([Event("OnCall", tags={ward, "ada"}), Event("OnCall", tags={ward, "bob"})]).last
            ada_leaves = partial(
                store.append, events("Left", ward, "ada"), no_new(Query.of(types={"Left"}, tags={ward, "bob"}), seen)
            )
            bob_leaves = partial(again.append, events("Left", ward, "bob"), no_new(tagged(ward), seen))
            outcomes = together(partial(attempt, ada_leaves), partial(attempt, bob_leaves))
            assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 1

    def test_07_no_blind_append_slips_between_a_condition_and_its_position(self, store: Store, again: Store) -> None:
        for number in range(20):
            tag = f"seat:{number}"
            seen = store.head()
            blind, decided = together(
                partial(attempt, partial(again.append, events("Blind", tag))),
                partial(attempt, partial(store.append, events("Decided", tag), no_new(tagged(tag), seen))),
            )
            assert isinstance(blind, Placed)
            if isinstance(decided, Placed):
                assert decided.first < blind.first
                assert types(store.read(tagged(tag))) == ["Decided", "Blind"]
            else:
                assert isinstance(decided, ConditionFailed)
                assert decided.conflict.position == blind.first
                assert types(store.read(tagged(tag))) == ["Blind"]

    def test_08_of_a_decision_and_its_rival_between_check_and_commit_only_one_is_stored(
        self, store: Store, again: Store
    ) -> None:
        seen = store.append(events("Added", "seat:1")).last
        condition = no_new(tagged("seat:1"), seen)
        rivals: list[Running[object]] = []

        def rival() -> None:
            # An engine that holds a lock over check and commit makes the rival wait until both are done.
            rivals.append(Running(partial(attempt, partial(again.append, events("Rival", "seat:1"), condition))))
            rivals[0].ended(BLOCKED_S)

        with self.overtaken(store, rival) as late:
            own = attempt(partial(late.append, events("Own", "seat:1"), condition))
        assert len(rivals) == 1
        outcomes = {"Own": own, "Rival": rivals[0].result()}
        (winner,) = [name for name, outcome in outcomes.items() if isinstance(outcome, Placed)]
        (loser,) = [outcome for outcome in outcomes.values() if isinstance(outcome, ConditionFailed)]
        assert loser.conflict.type == winner
        assert types(store.read(tagged("seat:1"))) == ["Added", winner]

    def test_08_of_a_decision_and_a_blind_rival_the_later_one_is_judged_with_the_earlier(
        self, store: Store, again: Store
    ) -> None:
        seen = store.append(events("Added", "seat:1")).last
        rivals: list[Running[Placed]] = []

        def rival() -> None:
            rivals.append(Running(partial(again.append, events("Rival", "seat:1"))))
            rivals[0].ended(BLOCKED_S)

        with self.overtaken(store, rival) as late:
            own = attempt(partial(late.append, events("Own", "seat:1"), no_new(tagged("seat:1"), seen)))
        assert rivals[0].result().first > seen
        found = types(store.read(tagged("seat:1")))
        assert found == (["Added", "Own", "Rival"] if isinstance(own, Placed) else ["Added", "Rival"])

    def test_09_appends_of_one_group_commit_that_conflict_are_judged_in_their_order(self, store: Store) -> None:
        seen = store.append(events("Added", "seat:1")).last
        condition = no_new(tagged("seat:1"), seen)
        reserving = Append(tuple(events("Reserved", "seat:1", count=2)), (condition,))
        elsewhere = Append(tuple(events("Reserved", "seat:2")), (no_new(tagged("seat:2")),))
        first, second, third, fourth = engine_beneath(store).commit([reserving, reserving, elsewhere, reserving])
        assert isinstance(first, Placed)
        assert isinstance(third, Placed)
        assert first.last < third.first
        for refused in (second, fourth):
            assert isinstance(refused, Conflict)
            assert (refused.condition, refused.position) == (condition, first.first)
        assert types(store.read(tagged("seat:1"))) == ["Added", "Reserved", "Reserved"]
        assert positions(store.read(tagged("seat:2"))) == [third.first]

    @pytest.mark.parametrize("way", WAYS)
    def test_09_in_one_group_commit_a_conflict_is_found_by(self, store: Store, way: str) -> None:
        appends = [Append(tuple(events("Reserved", "seat:1")), (no_new(WAYS[way]),)) for _ in range(3)]
        verdicts = engine_beneath(store).commit(appends)
        assert [type(verdict) for verdict in verdicts] == [Placed, Conflict, Conflict]
        assert store.head() == verdicts[0].last  # type: ignore[union-attr]

    def test_09_a_refused_append_does_not_count_against_those_behind_it(self, store: Store) -> None:
        store.append(events("Added", "seat:1"))
        refused = Append(tuple(events("Reserved", "seat:1", "seat:2")), (no_new(tagged("seat:1")),))
        accepted = Append(tuple(events("Reserved", "seat:2")), (no_new(tagged("seat:2")),))
        verdicts = engine_beneath(store).commit([refused, accepted])
        assert [type(verdict) for verdict in verdicts] == [Conflict, Placed]
        assert types(store.read(tagged("seat:2"))) == ["Reserved"]

    def test_09_many_callers_at_once_are_refused_exactly_when_they_conflict(self, store: Store) -> None:
        def reserve(seat: int) -> Placed:
            return store.append(events("Reserved", f"seat:{seat}"), no_new(tagged(f"seat:{seat}")))

        outcomes = together(*[partial(attempt, partial(reserve, number % 6)) for number in range(24)])
        assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 6
        for seat in range(6):
            assert len(list(store.read(tagged(f"seat:{seat}")))) == 1

    def test_10_of_two_reads_of_one_decision_the_earlier_one_is_guarded_too(self, store: Store) -> None:
        account = store.append(events("Opened", "account:1")).last
        first = store.read(tagged("account:1"))
        list(first)
        conflict = store.append(events("Closed", "account:1"))
        second = store.read(tagged("customer:1"))
        list(second)
        both = [no_new(tagged("account:1"), first.head), no_new(tagged("customer:1"), second.head)]
        failed = condition_fails(store, events("Paid", "account:1", "customer:1"), both)
        assert failed.condition == both[0]
        assert failed.conflict.position == conflict.first > account

    @pytest.mark.parametrize("failing", [0, 1, 2])
    def test_10_of_several_conditions_each_one_is_checked(self, store: Store, failing: int) -> None:
        conditions = [no_new(tagged(f"tag:{number}")) for number in range(3)]
        conflict = store.append(events("Happened", f"tag:{failing}"))
        failed = condition_fails(store, events("Decided"), conditions)
        assert failed.condition == conditions[failing]
        assert failed.conflict.position == conflict.first

    def test_the_conflict_is_the_first_one_after_the_condition(self, store: Store) -> None:
        seen = store.append(events("Added", "seat:1")).last
        store.append(events("Added", "seat:2", count=3))
        placed = store.append(events("Reserved", "seat:1", count=3))
        condition = AppendCondition(tagged("seat:1") | typed("Never"), after=seen)
        failed = condition_fails(store, events("Reserved", "seat:1"), condition)
        assert failed.condition == condition
        assert failed.conflict.position == placed.first
        assert failed.conflict == next(iter(store.read(tagged("seat:1"), after=seen)))
        assert matches(failed.conflict, condition.fail_if_events_match)

    def test_a_refused_append_stores_nothing(self, store: Store) -> None:
        head = store.append(events("Added", "seat:1")).last
        with pytest.raises(ConditionFailed):
            store.append(
                events("Reserved", "seat:1", "seat:2", count=3),
                [no_new(tagged("seat:2")), no_new(tagged("seat:1"))],
                checkpoint=("seats", 1),
            )
        assert store.head() == head
        assert types(store.read()) == ["Added"]
        assert store.checkpoint("seats") == 0
