"""The events and rules of wallets, independent of HTTP and of the store.

Each decision has the boundary that its rule needs and no more:

- opening: once per wallet id, without reading anything;
- a deposit: commutes with everything but the wallet's opening, so only that is read and checked;
- a withdrawal, and a transfer for the wallet that pays: the whole balance;
- with a cursor, whatever the operation: the whole wallet, since that is what the client has seen.

Each operation has an id of its own, and is applied once. The same id for another operation, with
another wallet, amount or description, is refused; another cursor does not make it another operation.
"""

from __future__ import annotations

from typing import Annotated

from fencepost.decisions import EventTypes, Once, Projection, Tag, decision, event, having, on, tag

WalletId = Annotated[str, tag("wallet_id")]


@event
class WalletOpened:
    wallet_id: Tag
    owner: str
    initial_balance: int


@event
class DepositMade:
    wallet_id: Tag
    deposit_id: Tag
    amount: int
    description: str = ""


@event
class WithdrawalMade:
    wallet_id: Tag
    withdrawal_id: Tag
    amount: int
    description: str = ""


@event
class MoneyTransferred:
    transfer_id: Tag
    from_wallet_id: WalletId
    to_wallet_id: WalletId
    amount: int
    description: str = ""


events = EventTypes(WalletOpened, DepositMade, WithdrawalMade, MoneyTransferred)


class WalletUnknown(Exception):
    def __init__(self, wallet_id: str) -> None:
        super().__init__(f"there is no wallet {wallet_id!r}")
        self.wallet_id = wallet_id


class CursorStale(Exception):
    """The wallet has changed since the client looked at it."""

    def __init__(self, wallet_id: str, cursor: int) -> None:
        super().__init__(f"wallet {wallet_id!r} has changed; its cursor is now {cursor}")
        self.wallet_id = wallet_id
        self.cursor = cursor


class InsufficientFunds(Exception):
    def __init__(self, wallet_id: str, balance: int, amount: int) -> None:
        super().__init__(f"wallet {wallet_id!r} has {balance}, which is less than {amount}")
        self.wallet_id = wallet_id
        self.balance = balance
        self.amount = amount


class Existence(Projection):
    """Whether there is such a wallet: all that a deposit needs to know."""

    wallet_id: Tag
    opened: bool = False

    @on
    def _(self, event: WalletOpened) -> None:
        self.opened = True

    def check(self) -> None:
        if not self.opened:
            raise WalletUnknown(self.wallet_id)


class Balance(Existence, snapshot_every=10):
    """A wallet and what is in it. Its cursor is the position of the last event that touched it."""

    owner: str = ""
    amount: int = 0

    @on
    def _(self, event: WalletOpened) -> None:
        self.opened = True
        self.owner = event.owner
        self.amount = event.initial_balance

    @on
    def _(self, event: DepositMade) -> None:
        self.amount += event.amount

    @on
    def _(self, event: WithdrawalMade) -> None:
        self.amount -= event.amount

    @on
    def _(self, event: MoneyTransferred) -> None:
        if event.from_wallet_id == self.wallet_id:
            self.amount -= event.amount
        if event.to_wallet_id == self.wallet_id:
            self.amount += event.amount

    def check_cursor(self, cursor: int | None) -> None:
        if cursor is not None and self.position > cursor:
            raise CursorStale(self.wallet_id, self.position)

    def check_funds(self, amount: int) -> None:
        if self.amount < amount:
            raise InsufficientFunds(self.wallet_id, self.amount, amount)


@decision(once=lambda wallet_id: having(WalletOpened, wallet_id=wallet_id))
def open_wallet(*, wallet_id: str, owner: str, initial_balance: int) -> WalletOpened:
    return WalletOpened(wallet_id, owner, initial_balance)


def same_deposit(wallet: Existence, deposit_id: str, amount: int, description: str) -> Once:
    made = having(DepositMade, deposit_id=deposit_id)
    return made.same(wallet_id=wallet.wallet_id, amount=amount, description=description)


def same_withdrawal(wallet: Balance, withdrawal_id: str, amount: int, description: str) -> Once:
    made = having(WithdrawalMade, withdrawal_id=withdrawal_id)
    return made.same(wallet_id=wallet.wallet_id, amount=amount, description=description)


def same_transfer(source: Balance, target: Existence, transfer_id: str, amount: int, description: str) -> Once:
    made = having(MoneyTransferred, transfer_id=transfer_id)
    wallets = {"from_wallet_id": source.wallet_id, "to_wallet_id": target.wallet_id}
    return made.same(**wallets, amount=amount, description=description)


@decision(once=same_deposit)
def deposit(wallet: Existence, *, deposit_id: str, amount: int, description: str = "") -> DepositMade:
    wallet.check()
    return DepositMade(wallet.wallet_id, deposit_id, amount, description)


@decision(once=same_deposit)
def deposit_at(wallet: Balance, *, cursor: int, deposit_id: str, amount: int, description: str = "") -> DepositMade:
    wallet.check()
    wallet.check_cursor(cursor)
    return DepositMade(wallet.wallet_id, deposit_id, amount, description)


@decision(once=same_withdrawal)
def withdraw(
    wallet: Balance, *, withdrawal_id: str, amount: int, description: str = "", cursor: int | None = None
) -> WithdrawalMade:
    wallet.check()
    wallet.check_cursor(cursor)
    wallet.check_funds(amount)
    return WithdrawalMade(wallet.wallet_id, withdrawal_id, amount, description)


@decision(once=same_transfer)
def transfer(
    source: Balance,
    target: Existence,
    *,
    transfer_id: str,
    amount: int,
    description: str = "",
    cursor: int | None = None,
) -> MoneyTransferred:
    """The cursor is that of the wallet that pays."""
    source.check()
    target.check()
    source.check_cursor(cursor)
    source.check_funds(amount)
    return MoneyTransferred(transfer_id, source.wallet_id, target.wallet_id, amount, description)
