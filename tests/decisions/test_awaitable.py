"""The same decisions on the awaitable store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost import EventStore, aio
from fencepost.decisions import Effect, Retry, decision, having, project

from .wallets import Balance, InsufficientFunds, WithdrawalMade, deposit, open_wallet, withdraw


@pytest.fixture
async def awaitable() -> AsyncIterator[aio.AsyncEventStore]:
    async with aio.open("memory:") as store:
        await open_wallet(store, wallet_id="w1", balance=100)
        yield store


async def test_a_decision_is_awaited(awaitable: aio.AsyncEventStore) -> None:
    decided = await withdraw(awaitable, Balance("w1"), withdrawal_id="x", amount=30)
    assert (decided.event, decided.position) == (WithdrawalMade("w1", "x", 30), 2)
    assert (await project(awaitable, Balance("w1"))).amount == 70


async def test_it_raises_what_the_rule_raises(awaitable: aio.AsyncEventStore) -> None:
    with pytest.raises(InsufficientFunds, match="100"):
        await withdraw(awaitable, Balance("w1"), withdrawal_id="x", amount=101)


async def test_tasks_that_conflict_are_retried_and_none_overdraws(awaitable: aio.AsyncEventStore) -> None:
    patient = withdraw.with_retry(Retry(attempts=100, base_s=0.001, cap_s=0.01))

    async def spend(number: int) -> bool:
        try:
            await patient(awaitable, Balance("w1"), withdrawal_id=str(number), amount=30)
        except InsufficientFunds:
            return False
        return True

    assert sum(await asyncio.gather(*(spend(number) for number in range(10)))) == 3
    assert (await project(awaitable, Balance("w1"))).amount == 10


async def test_tasks_that_deposit_do_not_conflict(awaitable: aio.AsyncEventStore) -> None:
    deposits = (deposit(awaitable, wallet_id="w1", deposit_id=str(number), amount=1) for number in range(20))
    positions = [decided.position for decided in await asyncio.gather(*deposits)]
    assert sorted(positions) == list(range(2, 22))


async def test_a_repetition_is_recognised(awaitable: aio.AsyncEventStore) -> None:
    rule = decision(once=lambda withdrawal_id: having(WithdrawalMade, withdrawal_id=withdrawal_id))(withdraw.function)
    results = await asyncio.gather(*(rule(awaitable, Balance("w1"), withdrawal_id="x", amount=60) for _ in range(5)))
    assert sorted(decided.already for decided in results) == [False, True, True, True, True]
    assert (await project(awaitable, Balance("w1"))).amount == 40


async def test_the_rule_may_be_async_itself(awaitable: aio.AsyncEventStore) -> None:
    @decision
    async def pay(balance: Balance, *, charge: Any) -> WithdrawalMade:
        return WithdrawalMade(balance.wallet_id, await charge(), balance.amount)

    async def charge() -> str:
        await asyncio.sleep(0)
        return "receipt"

    assert (await pay(awaitable, Balance("w1"), charge=Effect(charge))).event.withdrawal_id == "receipt"


async def test_a_store_of_the_other_kind_is_the_same_log(tmp_path: Any) -> None:
    import fencepost

    async with aio.open(tmp_path / "store.db") as store:
        await open_wallet(store, wallet_id="w1", balance=100)
    with fencepost.open(tmp_path / "store.db") as blocking:
        assert isinstance(blocking, EventStore)
        assert withdraw(blocking, Balance("w1"), withdrawal_id="x", amount=100).position == 2
