"""A conflict is retried, up to the limit; no other error is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from fencepost import AppendCondition, ConditionFailed, EventStore, InvalidInput, Placed, Query, StoreUnavailable
from fencepost.decisions import Cached, Effect, RetriesExhausted, Retry, decision, encode, having, project
from fencepost.decisions.retry import Turn

from .test_deciding import Watched
from .wallets import Balance, DepositMade, InsufficientFunds, WalletClosed, WithdrawalMade, open_wallet, withdraw

AT_ONCE = Retry(attempts=5, base_s=0, cap_s=0)


@pytest.fixture
def watched() -> Iterator[Watched]:
    with Watched() as store:
        open_wallet(store, wallet_id="w1", balance=100)
        yield store


def rivals(count: int, amount: int = 30) -> Iterator[Any]:
    return iter([[encode(WithdrawalMade("w1", f"rival-{number}", amount))] for number in range(count)])


class TestAConflict:
    def test_is_decided_again_on_the_new_events(self, watched: Watched) -> None:
        seen: list[int] = []

        @decision(retry=AT_ONCE)
        def spend_all(balance: Balance, *, withdrawal_id: str) -> WithdrawalMade:
            seen.append(balance.amount)
            return WithdrawalMade(balance.wallet_id, withdrawal_id, balance.amount)

        watched.before_append = rivals(2)
        assert spend_all(watched, Balance("w1"), withdrawal_id="x").event.amount == 40
        assert seen == [100, 70, 40]

    def test_may_end_in_the_answer_of_the_rule(self, watched: Watched) -> None:
        watched.before_append = rivals(1)
        with pytest.raises(InsufficientFunds, match="70"):
            withdraw(watched, Balance("w1"), withdrawal_id="x", amount=80)

    def test_does_not_see_what_an_earlier_attempt_did_to_its_projection(self, watched: Watched) -> None:
        @decision(retry=AT_ONCE)
        def reckless(balance: Balance, *, withdrawal_id: str) -> WithdrawalMade:
            balance.amount -= 10
            return WithdrawalMade(balance.wallet_id, withdrawal_id, balance.amount)

        watched.before_append = rivals(1)
        assert reckless(watched, Balance("w1"), withdrawal_id="x").event.amount == 60

    def test_on_every_attempt_ends_with_the_last_conflict(self, watched: Watched) -> None:
        rule = withdraw.with_retry(AT_ONCE)
        watched.before_append = rivals(9, amount=1)
        with pytest.raises(RetriesExhausted, match=r"withdraw: each of 5 attempts.*position 6") as refused:
            rule(watched, Balance("w1"), withdrawal_id="x", amount=1)
        error = refused.value
        assert (error.attempts, error.conflict.position) == (5, 6)
        assert isinstance(error.__cause__, ConditionFailed)
        assert error.condition == error.__cause__.condition
        assert not [event for event in watched.read(error.condition.fail_if_events_match) if b'"x"' in event.data]

    def test_is_decided_again_until_the_deadline(self, watched: Watched) -> None:
        rule = withdraw.with_retry(Retry(base_s=0, cap_s=0))
        watched.before_append = rivals(30, amount=1)
        assert rule(watched, Balance("w1"), withdrawal_id="x", amount=1).position == 32

    def test_may_be_decided_again_without_a_deadline(self, watched: Watched) -> None:
        rule = withdraw.with_retry(Retry(base_s=0, cap_s=0, deadline_s=float("inf")))
        holder = Turn((("wallet_id:w1",), None), 0)
        holder.run(watched)
        watched.before_append = rivals(4, amount=1)
        threading.Timer(0.05, holder.leave).start()
        assert rule(watched, Balance("w1"), withdrawal_id="x", amount=1).position == 6

    def test_after_the_deadline_is_the_last(self, watched: Watched) -> None:
        rule = withdraw.with_retry(Retry(deadline_s=0))
        watched.before_append = rivals(1)
        with pytest.raises(RetriesExhausted, match="the only attempt") as refused:
            rule(watched, Balance("w1"), withdrawal_id="x", amount=1)
        assert (refused.value.attempts, refused.value.elapsed_s > 0) == (1, True)

    def test_reads_only_what_is_new(self, watched: Watched) -> None:
        rule = withdraw.with_retry(AT_ONCE)
        watched.before_append = rivals(2, amount=1)
        rule(watched, Balance("w1"), withdrawal_id="x", amount=1)
        assert watched.afters == [0, 1, 2]

    def test_reads_only_what_is_new_also_from_a_snapshot(self, watched: Watched) -> None:
        rule, cached = withdraw.with_retry(AT_ONCE), Cached(watched)
        for number in range(3):
            rule(cached, Balance("w1"), withdrawal_id=str(number), amount=1)
        watched.afters.clear()
        watched.before_append = rivals(2, amount=1)
        decided = rule(cached, Balance("w1"), withdrawal_id="x", amount=95)
        assert (decided.event.amount, watched.afters) == (95, [2, 4, 5])
        assert project(watched, Balance("w1")).amount == 0

    def test_of_several_projections_is_folded_into_each(self, watched: Watched) -> None:
        seen: list[tuple[int, int]] = []

        @decision(retry=AT_ONCE)
        def move(source: Balance, target: Balance) -> list[WithdrawalMade]:
            seen.append((source.amount, target.amount))
            source.amount = target.amount = 0
            return [WithdrawalMade(source.wallet_id, "x", 1)]

        open_wallet(watched, wallet_id="w2", balance=50)
        watched.before_append = iter(
            [[encode(WithdrawalMade("w1", "a", 30))], [encode(DepositMade("w2", "b", 7))], [encode(WalletClosed("w3"))]]
        )
        move(watched, Balance("w1"), Balance("w2"))
        assert seen == [(100, 50), (70, 50), (70, 57)]

    def test_that_the_rule_itself_raises_is_an_answer_like_any_other(self, watched: Watched) -> None:
        calls: list[int] = []

        @decision
        def meddle(balance: Balance) -> WithdrawalMade:
            calls.append(1)
            stale = AppendCondition(Query.of(types={"WalletOpened"}), after=0)
            watched.append([encode(WithdrawalMade("w1", "x", 1))], stale)
            raise AssertionError("the append is refused")

        with pytest.raises(ConditionFailed):
            meddle(watched, Balance("w1"))
        assert calls == [1]

    def test_is_not_retried_by_a_decision_that_never_does(self, watched: Watched) -> None:
        rule = withdraw.with_retry(Retry(attempts=1))
        watched.before_append = rivals(1)
        with pytest.raises(RetriesExhausted, match="the only attempt"):
            rule(watched, Balance("w1"), withdrawal_id="x", amount=1)


class TestTheWait:
    def test_is_random_below_a_bound_that_doubles_up_to_a_cap(self) -> None:
        retry = Retry(attempts=10, base_s=0.01, cap_s=0.05)
        for attempt, bound in enumerate([0.01, 0.02, 0.04, 0.05, 0.05], start=1):
            waits = [retry.wait_s(attempt) for _ in range(300)]
            assert 0 <= min(waits) < bound / 4
            assert bound * 3 / 4 < max(waits) <= bound

    def test_of_a_very_late_attempt_is_bounded_too(self) -> None:
        assert Retry().wait_s(100_000) <= Retry().cap_s

    @pytest.mark.parametrize(
        "options", [{"attempts": 0}, {"base_s": -1}, {"base_s": 2, "cap_s": 1}, {"deadline_s": -1}]
    )
    def test_is_configured_sensibly(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match=r"attempts|base_s|deadline_s"):
            Retry(**options)


class TestOtherErrors:
    def test_of_the_store_are_not_retried(self, watched: Watched) -> None:
        calls = []

        def fail(*args: Any, **options: Any) -> Placed:
            calls.append(args)
            raise StoreUnavailable("the disk is full")

        watched.append = fail  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable, match="full"):
            withdraw(watched, Balance("w1"), withdrawal_id="x", amount=1)
        assert len(calls) == 1

    def test_of_a_store_out_of_reach_are_retried_if_asked_for(self, watched: Watched) -> None:
        insisting = Retry(attempts=5, base_s=0, cap_s=0, unavailable=True)
        rule = withdraw.with_retry(insisting)
        lost = LostAnswers(watched, arrived=[False, True])
        decided = rule(lost, Balance("w1"), withdrawal_id="x", amount=1)
        assert (decided.position, decided.already, watched.head()) == (2, False, 2)

    def test_a_lost_answer_does_not_hide_the_conflict_of_another_caller(self, watched: Watched) -> None:
        insisting = Retry(attempts=5, base_s=0, cap_s=0, unavailable=True)
        rule = decision(retry=insisting, once=lambda key: having(DepositMade, deposit_id=key))(
            lambda *, key: DepositMade("w1", key, 1)
        )
        lost = LostAnswers(watched, arrived=[False])
        lost.meanwhile = [encode(DepositMade("w1", "d", 7))]
        decided = rule(lost, key="d")
        assert (decided.event.amount, decided.already, watched.head()) == (7, True, 2)

    def test_out_of_reach_for_good_is_told(self, watched: Watched) -> None:
        insisting = Retry(attempts=3, base_s=0, cap_s=0, unavailable=True)
        rule = withdraw.with_retry(insisting)
        lost = LostAnswers(watched, arrived=[False] * 9)
        with pytest.raises(StoreUnavailable):
            rule(lost, Balance("w1"), withdrawal_id="x", amount=1)
        assert len(lost.ids) == 3
        assert len(set(lost.ids)) == 1


class LostAnswers(EventStore):
    """A store that loses the answers to its first appends, after or before they are stored."""

    def __init__(self, store: Watched, arrived: list[bool]) -> None:
        self._store = store
        self._arrived = arrived
        self.ids: list[UUID | None] = []
        self.meanwhile: list[Any] = []

    def read(self, *args: Any, **options: Any) -> Any:
        return self._store.read(*args, **options)

    def append(self, events: Any, *args: Any, **options: Any) -> Placed:
        self.ids.append(events[0].id)
        if not self._arrived:
            return self._store.append(events, *args, **options)
        if self.meanwhile:
            self._store.append(self.meanwhile)
        if self._arrived.pop(0):
            self._store.append(events, *args, **options)
        raise StoreUnavailable("the connection was lost")


class TestEffects:
    def test_are_made_once_though_the_decision_is_retried(self, watched: Watched) -> None:
        charges: list[int] = []

        def charge() -> str:
            charges.append(1)
            return f"receipt-{len(charges)}"

        @decision(retry=AT_ONCE)
        def pay(balance: Balance, *, charge: Any) -> WithdrawalMade:
            return WithdrawalMade(balance.wallet_id, charge(), 1)

        watched.before_append = rivals(2)
        assert pay(watched, Balance("w1"), charge=Effect(charge)).event.withdrawal_id == "receipt-1"
        assert charges == [1]

    def test_are_made_again_if_asked_for(self, watched: Watched) -> None:
        charges: list[int] = []

        @decision(retry=AT_ONCE)
        def pay(balance: Balance, *, charge: Any) -> WithdrawalMade:
            charge()
            return WithdrawalMade(balance.wallet_id, "x", 1)

        watched.before_append = rivals(2)
        pay(watched, Balance("w1"), charge=Effect(lambda: charges.append(1), again=True))
        assert charges == [1, 1, 1]

    def test_that_fail_are_not_remembered(self) -> None:
        answers = iter([OSError("down"), "receipt"])

        def charge() -> str:
            answer = next(answers)
            if isinstance(answer, OSError):
                raise answer
            return answer

        made = Effect(charge)
        with pytest.raises(OSError, match="down"):
            made()
        assert made() == "receipt"

    async def test_may_be_awaited(self) -> None:
        charges: list[int] = []

        async def charge() -> str:
            charges.append(1)
            return "receipt"

        made = Effect(charge)
        assert [await made(), await made()] == ["receipt", "receipt"]
        assert charges == [1]
