"""What must not pass. Each line differs in one thing from one that does."""

from __future__ import annotations

import fencepost
import fencepost.aio
from fencepost import EventStore
from fencepost.aio import AsyncEventStore
from fencepost.decisions import project

from .domain import Balance, Between, WalletOpened, WithdrawalMade, open_wallet, split, withdraw


def opening() -> None:
    fencepost.open("wallet.db", patience=3.0)  # wrong: mypy[call-overload] pyright[reportCallIssue]
    fencepost.open("wallet.db", schema="eu", read_only=True)  # wrong: mypy[call-overload] pyright[reportCallIssue]
    fencepost.aio.open("wallet.db", patience_s="3")  # wrong: mypy[call-overload] pyright[reportCallIssue] pyright[reportArgumentType]


def values() -> None:
    WalletOpened("w1")  # wrong: mypy[call-arg] pyright[reportCallIssue]
    WalletOpened("w1", "5")  # wrong: mypy[arg-type] pyright[reportArgumentType]
    WalletOpened("w1", 5, ballance=5)  # wrong: mypy[call-arg] pyright[reportCallIssue]
    WalletOpened("w1", 5).balance = 6  # wrong: mypy[misc] pyright[reportAttributeAccessIssue]
    Balance()  # wrong: mypy[call-arg] pyright[reportCallIssue]
    Balance(5)  # wrong: mypy[arg-type] pyright[reportArgumentType]
    Balance(wallet="w1")  # wrong: mypy[call-arg] pyright[reportCallIssue]
    Between("w1")  # wrong: mypy[call-arg] pyright[reportCallIssue]
    text: str = Balance("w1").amount  # wrong: mypy[assignment] pyright[reportAssignmentType]
    print(text, Balance("w1").balance)  # wrong: mypy[attr-defined] pyright[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def blocking(store: EventStore) -> None:
    open_wallet(store, wallet_id="w1")  # wrong: mypy[call-overload] pyright[reportCallIssue]
    open_wallet(store, "w1", balance=5)  # wrong: mypy[call-overload] pyright[reportCallIssue]
    open_wallet(store, wallet_id="w1", balance="5")  # wrong: mypy[call-overload] pyright[reportCallIssue, reportArgumentType]
    open_wallet("store.db", wallet_id="w1", balance=5)  # wrong: mypy[call-overload] pyright[reportCallIssue, reportArgumentType]
    withdraw(store, Between("w1", "x"), withdrawal_id="x", amount=1)  # wrong: mypy[call-overload] pyright[reportCallIssue, reportArgumentType]
    withdraw(store, Balance("w1"), withdrawal_id="x", amount=1, note="")  # wrong: mypy[call-overload] pyright[reportCallIssue]
    split(store, [Between("w1", "x")])  # wrong: mypy[list-item] pyright[reportArgumentType, reportCallIssue]
    other: WalletOpened = withdraw(store, Balance("w1"), withdrawal_id="x", amount=1).event  # wrong: mypy[assignment] pyright[reportAssignmentType]
    decided = withdraw(store, Balance("w1"), withdrawal_id="x", amount=1)
    print(other, decided.event.balance)  # wrong: mypy[attr-defined] pyright[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    text: str = decided.event.amount  # wrong: mypy[assignment] pyright[reportAssignmentType]
    between: Between = project(store, Balance("w1"))  # wrong: mypy[assignment] pyright[reportAssignmentType]
    print(text, between)


def once(store: EventStore) -> None:
    withdraw(store, Balance("w1"), withdrawal_id="x", amount=1, once=5)  # wrong: mypy[call-overload] pyright[reportCallIssue, reportArgumentType]
    withdraw.once(5)(store, Balance("w1"), withdrawal_id="x", amount=1)  # wrong: mypy[arg-type] pyright[reportArgumentType]
    withdraw.once("c-1")(store, Balance("w1"), withdrawal_id="x", amount="1")  # wrong: mypy[call-overload] pyright[reportCallIssue, reportArgumentType]
    text: str = withdraw(store, Balance("w1"), withdrawal_id="x", amount=1, once="c-1").event  # wrong: mypy[assignment] pyright[reportAssignmentType]
    print(text)


async def awaited(store: AsyncEventStore) -> None:
    await withdraw(store, Balance("w1"), withdrawal_id="x")  # wrong: mypy[call-overload] pyright[reportCallIssue]
    print(withdraw(store, Balance("w1"), withdrawal_id="x", amount=1).event)  # wrong: mypy[attr-defined] pyright[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    other: WalletOpened = (await withdraw(store, Balance("w1"), withdrawal_id="x", amount=1)).event  # wrong: mypy[assignment] pyright[reportAssignmentType]
    print(other, WithdrawalMade)
