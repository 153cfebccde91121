"""Context and clock: the cause and the time of events, without being passed as arguments."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta, timezone

import pytest

from fencepost import EventStore, aio
from fencepost.decisions import clock, context, decision, now

from .wallets import DepositMade, deposit

MOMENT = datetime(2030, 1, 2, tzinfo=timezone.utc)


class TestContext:
    def test_goes_into_the_metadata(self, store: EventStore) -> None:
        with context(correlation_id="c", user="ada"):
            deposit(store, wallet_id="w1", deposit_id="d", amount=1)
        (event,) = store.read()
        assert event.metadata == {"correlation_id": "c", "user": "ada"}

    def test_adds_to_the_one_around_it_and_ends(self, store: EventStore) -> None:
        with context(correlation_id="c", user="ada"):
            with context(user="bob", causation_id="x"):
                deposit(store, wallet_id="w1", deposit_id="1", amount=1)
            deposit(store, wallet_id="w1", deposit_id="2", amount=1)
        deposit(store, wallet_id="w1", deposit_id="3", amount=1)
        assert [event.metadata for event in store.read()] == [
            {"correlation_id": "c", "user": "bob", "causation_id": "x"},
            {"correlation_id": "c", "user": "ada"},
            {},
        ]

    def test_of_a_reaction_names_its_cause_and_keeps_the_correlation(self, store: EventStore) -> None:
        with context(correlation_id="c"):
            deposit(store, wallet_id="w1", deposit_id="1", amount=1)
        (first,) = store.read()
        with context(caused_by=first):
            deposit(store, wallet_id="w1", deposit_id="2", amount=1)
        (second,) = store.read(after=1)
        assert second.metadata == {"correlation_id": "c", "causation_id": "1"}
        with context(caused_by=second):
            deposit(store, wallet_id="w1", deposit_id="3", amount=1)
        (third,) = store.read(after=2)
        assert third.metadata == {"correlation_id": "c", "causation_id": "2"}

    def test_of_a_reaction_to_an_event_without_begins_a_correlation(self, store: EventStore) -> None:
        deposit(store, wallet_id="w1", deposit_id="1", amount=1)
        (first,) = store.read()
        with context(caused_by=first):
            deposit(store, wallet_id="w1", deposit_id="2", amount=1)
        (second,) = store.read(after=1)
        assert second.metadata == {"correlation_id": "1", "causation_id": "1"}

    def test_does_not_leak_into_other_threads(self, store: EventStore) -> None:
        with context(user="ada"):
            thread = threading.Thread(target=lambda: deposit(store, wallet_id="w1", deposit_id="d", amount=1))
            thread.start()
            thread.join()
        (event,) = store.read()
        assert event.metadata == {}

    async def test_is_each_tasks_own(self) -> None:
        async with aio.open("memory:") as store:

            async def act(user: str) -> None:
                with context(user=user):
                    await asyncio.sleep(0)
                    await deposit(store, wallet_id=user, deposit_id=user, amount=1)

            await asyncio.gather(*(act(user) for user in "abc"))
            seen = [f"wallet_id:{event.metadata['user']}" in event.tags async for event in store.read()]
        assert seen == [True, True, True]


class TestClock:
    def test_is_the_systems_by_default(self) -> None:
        assert abs(now() - datetime.now(timezone.utc)) < timedelta(minutes=1)

    def test_can_stand_still(self, store: EventStore) -> None:
        @decision
        def stamp() -> DepositMade:
            return DepositMade("w1", now().isoformat(), 1)

        with clock(MOMENT):
            assert stamp(store).event.deposit_id == MOMENT.isoformat()

    def test_can_be_replaced_and_comes_back(self) -> None:
        ticks = iter([MOMENT, MOMENT + timedelta(seconds=1)])
        with clock(lambda: next(ticks)):
            assert now() < now()
        assert abs(now() - datetime.now(timezone.utc)) < timedelta(minutes=1)

    def test_must_know_its_time_zone(self) -> None:
        with clock(datetime(2030, 1, 2)), pytest.raises(AssertionError, match="time zone"):
            now()
