"""A small domain for the tests: wallets, as the documentation introduces them."""

from __future__ import annotations

from fencepost.decisions import Projection, Tag, decision, event, on


@event
class WalletOpened:
    wallet_id: Tag
    owner: str
    balance: int


@event
class WalletClosed:
    wallet_id: Tag


@event
class DepositMade:
    wallet_id: Tag
    deposit_id: Tag
    amount: int


@event
class WithdrawalMade:
    wallet_id: Tag
    withdrawal_id: Tag
    amount: int


class InsufficientFunds(Exception):
    pass


class Status(Projection):
    wallet_id: Tag
    open: bool = False

    @on
    def _(self, event: WalletOpened) -> None:
        self.open = True

    @on
    def _(self, event: WalletClosed) -> None:
        self.open = False


class Balance(Projection, snapshot_every=3):
    wallet_id: Tag
    opened: bool = False
    amount: int = 0

    @on
    def _(self, event: WalletOpened) -> None:
        self.opened = True
        self.amount = event.balance

    @on
    def _(self, event: DepositMade) -> None:
        self.amount += event.amount

    @on
    def _(self, event: WithdrawalMade) -> None:
        self.amount -= event.amount


@decision
def open_wallet(*, wallet_id: str, balance: int) -> WalletOpened:
    return WalletOpened(wallet_id, "Ada", balance)


@decision
def withdraw(balance: Balance, *, withdrawal_id: str, amount: int) -> WithdrawalMade:
    if balance.amount < amount:
        raise InsufficientFunds(balance.amount)
    return WithdrawalMade(balance.wallet_id, withdrawal_id, amount)


@decision
def deposit(*, wallet_id: str, deposit_id: str, amount: int) -> DepositMade:
    return DepositMade(wallet_id, deposit_id, amount)
