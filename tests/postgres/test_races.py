"""Races between two transactions, step by step: another writer has judged but not committed."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
import pytest
from tests.postgres.stepping import hand, wait_for_waiting

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Placed, Query, QueryItem
from fencepost.core.verdicts import Append
from fencepost.testing.contract.base import Running, attempt, events, no_new, positions, tagged, take, typed, types

SEAT = Event("Reserved", tags={"seat:1", "row:1"})
# Every form of a condition that the event above makes fail.
SPOILED = {
    "a tag": tagged("seat:1"),
    "two tags": tagged("seat:1", "row:1"),
    "a type": typed("Reserved"),
    "types": typed("Other", "Reserved"),
    "a type and a tag": Query.of(types={"Reserved"}, tags={"row:1"}),
    "everything": Query.all(),
    "the last of several items": Query(
        [
            QueryItem(types={"Other"}, tags={"seat:1"}),
            QueryItem(tags={"seat:2"}),
            QueryItem(types={"Reserved"}, tags={"row:1"}),
        ]
    ),
}


@pytest.mark.parametrize("shape", SPOILED)
def test_01_to_05_an_append_that_waited_for_another_is_judged_with_its_events(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any], shape: str
) -> None:
    seen = store.append(events("Added")).last
    with hand(database_url, schema) as winner:
        (won,) = winner.append(Append((SEAT,), (no_new(SPOILED[shape], seen),)))
        late = Running(partial(attempt, partial(store.append, [SEAT], no_new(SPOILED[shape], seen))))
        wait_for_waiting(connection, 1)
        winner.connection.commit()
    refusal = late.result()
    assert isinstance(won, Placed)
    assert isinstance(refusal, ConditionFailed)
    assert refusal.conflict.position == won.first
    assert store.head() == won.last


def test_01_of_many_that_wait_behind_each_other_exactly_one_wins(
    url: str, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    stores = [fencepost.open(url) for _ in range(6)]
    with hand(database_url, schema) as first:
        first.append(Append((Event("Added", tags={"row:1"}),)))
        racing = [
            Running(partial(attempt, partial(one.append, [SEAT], no_new(tagged("seat:1"))))) for one in stores * 3
        ]
        wait_for_waiting(connection, len(stores))
        first.connection.commit()
    outcomes = [one.result() for one in racing]
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, ConditionFailed)]
    assert [loser.conflict.position for loser in losers] == [winner.first] * (len(racing) - 1)
    for one in stores:
        one.close()


def test_02_an_older_write_transaction_hides_nothing(
    store: EventStore, url: str, database_url: str, schema: str
) -> None:
    seen = store.append(events("Added", "seat:1")).last
    with hand(database_url, schema) as older:
        older.take_id()
        with fencepost.open(url) as other:
            won = other.append([SEAT], no_new(tagged("seat:1"), seen))
        with pytest.raises(ConditionFailed) as failed:
            store.append([SEAT], no_new(tagged("seat:1"), seen))
        assert failed.value.conflict.position == won.first


def test_03_a_loser_whose_transaction_began_before_the_winners_is_refused(
    store: EventStore, database_url: str, schema: str
) -> None:
    seen = store.append(events("Added", "seat:1")).last
    with hand(database_url, schema) as loser:
        loser.take_id()
        won = store.append([SEAT], no_new(tagged("seat:1"), seen))
        (refused,) = loser.append(Append((SEAT,), (no_new(tagged("seat:1"), seen),)))
    assert not isinstance(refused, Placed)
    assert refused.position == won.first


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_03_a_snapshot_from_before_the_winner_is_refused_as_such(
    store: EventStore, database_url: str, schema: str, level: str
) -> None:
    with hand(database_url, schema) as loser:
        loser.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        loser.take_id()
        store.append([SEAT])
        with pytest.raises(psycopg.errors.InvalidTransactionState):
            loser.append(Append((SEAT,), (no_new(tagged("seat:1")),)))


def test_06_of_two_decisions_that_spoil_each_other_one_is_refused(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    """Each sees that the other is on call, and wants to leave."""
    ada_leaves, bob_leaves = Event("Left", tags={"doctor:ada"}), Event("Left", tags={"doctor:bob"})
    with hand(database_url, schema) as ada:
        (left,) = ada.append(Append((ada_leaves,), (no_new(tagged("doctor:bob")),)))
        bob = Running(partial(attempt, partial(store.append, [bob_leaves], no_new(tagged("doctor:ada")))))
        wait_for_waiting(connection, 1)
        ada.connection.commit()
    assert isinstance(left, Placed)
    assert isinstance(bob.result(), ConditionFailed)


def test_07_a_blind_append_never_gets_between_a_condition_and_its_events(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as decision:
        (placed,) = decision.append(Append((SEAT,), (no_new(tagged("seat:1")),)))
        blind = Running(partial(store.append, [SEAT]))
        wait_for_waiting(connection, 1)
        decision.connection.commit()
    assert isinstance(placed, Placed)
    assert blind.result().first == placed.last + 1


def test_07_a_decision_is_judged_with_a_blind_append_that_came_first(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as blind:
        blind.append(Append((SEAT,)))
        decision = Running(partial(attempt, partial(store.append, [SEAT], no_new(tagged("seat:1")))))
        wait_for_waiting(connection, 1)
        blind.connection.commit()
    assert isinstance(decision.result(), ConditionFailed)


def test_08_nothing_is_committed_between_check_and_commit(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as decision:
        (placed,) = decision.append(Append((SEAT,), (no_new(tagged("seat:1")),)))
        rival = Running(partial(store.append, [SEAT]))
        wait_for_waiting(connection, 1)
        assert store.head() == 0
        decision.connection.commit()
    assert (placed, rival.result().first) == (Placed(1, 1), 2)


def test_09_appends_that_gathered_behind_the_lock_are_judged_in_order(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as first:
        first.append(Append(tuple(events("Added"))))
        racing = [Running(partial(attempt, partial(store.append, [SEAT], no_new(tagged("seat:1"))))) for _ in range(8)]
        wait_for_waiting(connection, 1)
        first.connection.commit()
    outcomes = [one.result() for one in racing]
    assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 1
    assert positions(store.read(tagged("seat:1"))) == [2]


def test_10_a_race_on_the_earlier_of_two_reads_is_a_conflict(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    earlier, later = no_new(tagged("course:1")), no_new(tagged("student:1"))
    with hand(database_url, schema) as rival:
        rival.append(Append((Event("Closed", tags={"course:1"}),)))
        decision = Running(partial(attempt, partial(store.append, events("Joined", "course:1"), [earlier, later])))
        wait_for_waiting(connection, 1)
        rival.connection.commit()
    refusal = decision.result()
    assert isinstance(refusal, ConditionFailed)
    assert refusal.condition == earlier


def test_18_a_position_is_not_given_out_while_a_lower_one_is_not_committed(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as slow:
        slow.append(Append((Event("Slow"),)))
        fast = Running(partial(store.append, events("Fast")))
        wait_for_waiting(connection, 1)
        assert (store.head(), list(store.read())) == (0, [])
        slow.connection.commit()
    assert fast.result() == Placed(2, 2)
    assert types(store.read()) == ["Slow", "Fast"]


def test_18_a_position_that_was_rolled_back_leaves_no_gap(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as slow:
        slow.append(Append((Event("Slow"), Event("Slow"))))
        fast = Running(partial(store.append, events("Fast")))
        wait_for_waiting(connection, 1)
        slow.connection.rollback()
    assert fast.result() == Placed(1, 1)
    assert types(store.read()) == ["Fast"]


def test_19_a_subscriber_survives_a_transaction_that_stays_open(
    store: EventStore, url: str, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    subscription = store.subscribe(timeout_s=30)
    with hand(database_url, schema) as older:
        older.take_id()
        store.append(events("First"))
        assert types(take(subscription, 1)) == ["First"]
        older.append(Append((Event("Second"),)))
        with fencepost.open(url) as other:
            third = Running(partial(other.append, events("Third")))
            wait_for_waiting(connection, 1)
            older.connection.commit()
            third.result()
    found = take(subscription, 2)
    assert (types(found), positions(found)) == (["Second", "Third"], [2, 3])
    subscription.stop()


def test_a_condition_of_its_own_events_is_no_conflict_within_a_batch(database_url: str, url: str, schema: str) -> None:
    with hand(database_url, schema) as writer:
        condition = AppendCondition(Query.of(tags={"seat:1"}))
        first, second = writer.append(Append((SEAT, SEAT), (condition,)), Append((Event("Other"),), (condition,)))
    assert first == Placed(1, 2)
    assert not isinstance(second, Placed)
    assert second.position == 1
