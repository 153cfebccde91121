"""What the samples are about."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.decisions import Effect, Once, Projection, Tag, Unchecked, decision, event, having, on


@event
class WalletOpened:
    wallet_id: Tag
    balance: int
    note: str = ""


@event(type="Withdrawal", version=1)
class WithdrawalMade:
    wallet_id: Tag
    withdrawal_id: Tag
    amount: int


class Balance(Projection, snapshot_every=10):
    wallet_id: Tag
    amount: int = 0
    history: list[int] = []  # noqa: RUF012  made anew for each instance

    @on
    def _(self, event: WalletOpened) -> None:
        self.amount = event.balance

    @on
    def _(self, event: WithdrawalMade) -> None:
        self.amount -= event.amount
        self.history.append(event.amount)


class Between(Projection):
    """Scoped by the parameters of an `__init__`."""

    withdrawals: int = 0

    def __init__(self, wallet_id: str, withdrawal_id: str) -> None:
        self.asked_for = (wallet_id, withdrawal_id)

    @on
    def _(self, event: WithdrawalMade) -> None:
        self.withdrawals += 1


@decision
def open_wallet(*, wallet_id: str, balance: int) -> WalletOpened:
    return WalletOpened(wallet_id, balance)


@decision
def withdraw(balance: Balance, *, withdrawal_id: str, amount: int) -> WithdrawalMade:
    return WithdrawalMade(balance.wallet_id, withdrawal_id, amount)


def by_id(withdrawal_id: str) -> Once:
    return having(WithdrawalMade, withdrawal_id=withdrawal_id)


@decision(once=by_id)
def withdraw_once(balance: Balance, *, withdrawal_id: str, amount: int) -> WithdrawalMade:
    return WithdrawalMade(balance.wallet_id, withdrawal_id, amount)


@decision
def withdraw_some(balance: Balance, informed: Unchecked[Between]) -> WithdrawalMade | None:
    return None if informed.withdrawals else WithdrawalMade(balance.wallet_id, "some", balance.amount)


@decision
def look(balance: Balance) -> None:
    return None


@decision
def split(wallets: list[Balance]) -> list[WithdrawalMade]:
    return [WithdrawalMade(each.wallet_id, "split", 1) for each in wallets]


@decision
def reopen(balance: Balance) -> tuple[WithdrawalMade, WalletOpened]:
    return WithdrawalMade(balance.wallet_id, "all", balance.amount), WalletOpened(balance.wallet_id, 0)


@decision
def stream(balance: Balance) -> Iterator[WithdrawalMade | WalletOpened]:
    yield WithdrawalMade(balance.wallet_id, "first", 1)
    yield WalletOpened(balance.wallet_id, 5)


@decision
def charge(balance: Balance, *, receipt: Effect[str]) -> WithdrawalMade:
    return WithdrawalMade(balance.wallet_id, receipt(), 1)


@decision
async def pay(balance: Balance, *, amount: int) -> WithdrawalMade:
    return WithdrawalMade(balance.wallet_id, "paid", amount)


@decision
async def pay_all(balance: Balance) -> list[WithdrawalMade]:
    return [WithdrawalMade(balance.wallet_id, "all", balance.amount)]


@decision
async def watch(balance: Balance) -> None:
    return None
