"""What must pass. The tests run it as well."""

from __future__ import annotations

from typing import Never, assert_type
from uuid import UUID

import fencepost
import fencepost.aio
from fencepost import EventStore
from fencepost.aio import AsyncEventStore
from fencepost.decisions import Cached, CommandId, Decided, Effect, Once, Retry, having, project

from .domain import (
    Balance,
    Between,
    WalletOpened,
    WithdrawalMade,
    charge,
    look,
    open_wallet,
    pay,
    pay_all,
    reopen,
    split,
    stream,
    watch,
    withdraw,
    withdraw_once,
    withdraw_some,
)


def values() -> None:
    opened = WalletOpened("w1", balance=5)
    assert_type(opened, WalletOpened)
    assert_type(opened.balance, int)
    assert_type(opened.note, str)
    balance = Balance("w1")
    assert_type(balance, Balance)
    assert_type(balance.wallet_id, str)
    assert_type(Balance(wallet_id="w1").amount, int)
    assert_type(balance.history, list[int])
    assert_type(balance.position, int)
    assert_type(Between("w1", "x").withdrawals, int)
    assert_type(having(WithdrawalMade, withdrawal_id="x"), Once)


def blocking(store: EventStore) -> None:
    values()
    decided = open_wallet(store, wallet_id="w1", balance=100)
    assert_type(decided, Decided[WalletOpened])
    assert_type(decided.event, WalletOpened)
    assert_type(decided.events, tuple[WalletOpened, ...])
    assert_type(decided.event.balance, int)
    assert_type((decided.first, decided.position, decided.already), tuple[int, int, bool])
    assert_type(withdraw(store, Balance("w1"), withdrawal_id="a", amount=1), Decided[WithdrawalMade])
    assert_type(withdraw(store, balance=Balance("w1"), withdrawal_id="b", amount=1).event.amount, int)
    assert_type(withdraw(Cached(store), Balance("w1"), withdrawal_id="c", amount=1), Decided[WithdrawalMade])
    assert_type(withdraw_some(store, Balance("w1"), Between("w1", "z")), Decided[WithdrawalMade])
    assert_type(look(store, Balance("w1")), Decided[Never])
    assert_type(split(store, [Balance("w1"), Balance("w2")]), Decided[WithdrawalMade])
    assert_type(reopen(store, Balance("w1")), Decided[WithdrawalMade | WalletOpened])
    assert_type(stream(store, Balance("w1")), Decided[WithdrawalMade | WalletOpened])
    receipt = Effect(lambda: "r")
    assert_type(receipt, Effect[str])
    assert_type(charge(store, Balance("w1"), receipt=receipt), Decided[WithdrawalMade])
    assert_type(project(store, Balance("w1")), Balance)
    assert_type(project(Cached(store), Balance("w1")).amount, int)
    once(store)


def once(store: EventStore) -> None:
    balance = Balance("w1")
    assert_type(withdraw(store, balance, withdrawal_id="x", amount=1, once="c-1"), Decided[WithdrawalMade])
    assert_type(withdraw(store, balance, withdrawal_id="x", amount=1, once=UUID(int=1)), Decided[WithdrawalMade])
    assert_type(withdraw.once("c-2")(store, balance, withdrawal_id="x", amount=1), Decided[WithdrawalMade])
    assert_type(withdraw_once(store, balance, withdrawal_id="x", amount=1).already, bool)
    shared = CommandId("c-3", scope="withdrawals", arguments={"amount": 1})
    assert_type(withdraw.once(shared)(store, balance, withdrawal_id="x", amount=1).event, WithdrawalMade)
    patient = withdraw.with_retry(Retry(deadline_s=30))
    assert_type(patient(store, balance, withdrawal_id="y", amount=1).event, WithdrawalMade)


async def awaited(store: AsyncEventStore) -> None:
    assert_type(await open_wallet(store, wallet_id="w1", balance=100), Decided[WalletOpened])
    decided = await withdraw(store, Balance("w1"), withdrawal_id="a", amount=1)
    assert_type(decided, Decided[WithdrawalMade])
    assert_type(await withdraw(Cached(store), Balance("w1"), withdrawal_id="b", amount=1), Decided[WithdrawalMade])
    assert_type(await withdraw(store, Balance("w1"), withdrawal_id="c", amount=1, once="c-1"), Decided[WithdrawalMade])
    assert_type(await withdraw.once("c-2")(store, Balance("w1"), withdrawal_id="d", amount=1), Decided[WithdrawalMade])
    assert_type(await reopen(store, Balance("w1")), Decided[WithdrawalMade | WalletOpened])
    assert_type(await look(store, Balance("w1")), Decided[Never])
    assert_type((await pay(store, Balance("w1"), amount=5)).event.amount, int)
    assert_type(await pay_all(store, Balance("w1")), Decided[WithdrawalMade])
    assert_type(await watch(store, Balance("w1")), Decided[Never])
    assert_type((await project(store, Balance("w1"))).amount, int)


async def opening(path: str, url: str) -> None:
    """Not run: what each kind of store may be opened with."""
    assert_type(fencepost.open(path), EventStore)
    assert_type(fencepost.open(path, read_only=True, patience_s=3), EventStore)
    assert_type(fencepost.open(url, schema="eu", create=True, connections=4), EventStore)
    async with fencepost.aio.open(path, create=False) as store:
        assert_type(store, AsyncEventStore)
    assert_type(await fencepost.aio.open(url, key="secret"), AsyncEventStore)
