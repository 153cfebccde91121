"""A log that went back, as after a failover to an asynchronous standby or a restored backup, is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import fencepost
from fencepost import Event, EventStore, StoreCorrupt, StoreError
from fencepost.testing.contract.base import events, take, types
from fencepost.testing.faults import PATIENCE_S


@pytest.fixture
def roll_back(schema: str, connection: psycopg.Connection[Any]) -> Callable[[int], None]:
    """Remove the events above a position, and end the connections of all stores, as a failover does."""

    def roll_back(head: int) -> None:
        for table in ("event", "more_tags"):
            connection.execute(f'DELETE FROM "{schema}".{table} WHERE position > {head}'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'fencepost' AND datname = current_database()"
        )

    return roll_back


CALLS: dict[str, Callable[[EventStore], object]] = {
    "append": lambda store: store.append(events("Late")),
    "head": lambda store: store.head(),
    "read": lambda store: list(store.read()),
    "checkpoint": lambda store: store.checkpoint("c"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_whose_head_went_back_is_refused(
    store: EventStore, roll_back: Callable[[int], None], call: str, url: str
) -> None:
    store.append(events("A", count=3))
    store.append(events("A", count=3))
    roll_back(3)
    with pytest.raises(StoreCorrupt, match=r"head is 3, and position 6 was seen: the log went back"):
        CALLS[call](store)
    with fencepost.open(url) as other:
        assert other.head() == 3


@pytest.mark.parametrize("seen_by", ["appending", "opening"])
def test_positions_that_were_assigned_again_are_noticed(
    url: str, roll_back: Callable[[int], None], seen_by: str
) -> None:
    """Other clients have appended more than was lost, so the head alone shows nothing."""
    with fencepost.open(url) as store:
        store.append([Event("A", data=b"1"), Event("A", data=b"2")])
        with fencepost.open(url) as opened:
            roll_back(1)
            with fencepost.open(url) as other:
                other.append([Event("A", data=b"%d" % number) for number in (3, 4, 5)])
            with pytest.raises(StoreCorrupt, match=r"position 2 holds another event .* the log went back"):
                (store if seen_by == "appending" else opened).append(events("Late"))


def test_a_subscription_to_a_log_that_went_back_raises(store: EventStore, roll_back: Callable[[int], None]) -> None:
    store.append(events("A", count=3))
    subscription = store.subscribe(timeout_s=PATIENCE_S)
    assert types(take(subscription, 3)) == ["A"] * 3
    roll_back(1)
    with pytest.raises(StoreCorrupt, match="the log went back"):
        next(subscription)


def test_a_subscription_of_a_task_to_a_log_that_went_back_raises(url: str, roll_back: Callable[[int], None]) -> None:
    async def act() -> None:
        async with fencepost.aio.open(url) as store:
            await store.append(events("A", count=3))
            subscription = store.subscribe(timeout_s=PATIENCE_S)
            assert [(await anext(subscription)).position for _ in range(3)] == [1, 2, 3]
            await asyncio.to_thread(roll_back, 1)
            with pytest.raises(StoreCorrupt, match="the log went back"):
                await anext(subscription)

    asyncio.run(act())


def test_a_subscription_after_a_position_beyond_the_head_is_refused(store: EventStore) -> None:
    """As by a consumer whose checkpoint is from before the restore of an older backup."""
    store.append(events("A", count=3))
    with pytest.raises(StoreCorrupt, match=r"after position 9, since the head of the log is 3"):
        next(store.subscribe(after=9, timeout_s=0))
    assert list(store.subscribe(after=3, timeout_s=0)) == []


def test_a_restore_in_place_is_noticed_on_connections_that_survive_it(
    store: EventStore, schema: str, connection: psycopg.Connection[Any]
) -> None:
    store.append(events("A", count=3))
    connection.execute(f'DELETE FROM "{schema}".event WHERE position > 1'.encode())
    with pytest.raises(StoreError, match="went back"):
        list(store.read())
    with pytest.raises(StoreCorrupt, match="head is 1, and position 3 was seen"):
        store.append(events("B"))


def test_removing_the_beginning_of_the_log_is_no_rollback(
    store: EventStore, schema: str, url: str, connection: psycopg.Connection[Any], roll_back: Callable[[int], None]
) -> None:
    store.append(events("A", count=3))
    with fencepost.open(url) as other:
        other.append(events("B", count=3))
    connection.execute(f'DELETE FROM "{schema}".event WHERE position <= 4'.encode())
    roll_back(6)
    assert store.append(events("C")).last == 7
