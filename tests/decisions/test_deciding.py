"""Decisions: what they read, what they are checked against, what they return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import AppendCondition, Event, EventStore, InvalidInput, Placed, Query, QueryItem
from fencepost.decisions import (
    DefinitionError,
    RetriesExhausted,
    Retry,
    Unchecked,
    decision,
    encode,
    project,
)

from .wallets import (
    Balance,
    DepositMade,
    InsufficientFunds,
    Status,
    WalletClosed,
    WalletOpened,
    WithdrawalMade,
    deposit,
    open_wallet,
    withdraw,
)


class Watched(EventStore):
    """A memory store that remembers what was asked of it, and lets something happen before an append."""

    def __init__(self) -> None:
        from fencepost.engines.memory import MemoryEngine

        super().__init__(MemoryEngine())
        self.queries: list[Query] = []
        self.afters: list[int] = []
        self.conditions: list[Any] = []
        self.before_append: Iterator[list[Event]] = iter(())

    def read(self, query: Query | None = None, **options: Any) -> Any:
        assert query is not None
        self.queries.append(query)
        self.afters.append(options.get("after", 0))
        return super().read(query, **options)

    def append(self, events: Any, condition: Any = None, **options: Any) -> Placed:
        self.conditions.append(condition)
        for meanwhile in self.before_append:
            super().append(meanwhile)
            break
        return super().append(events, condition, **options)


@pytest.fixture
def watched() -> Iterator[Watched]:
    with Watched() as store:
        yield store


HANDLED = {"WalletOpened", "DepositMade", "WithdrawalMade"}


class TestMisuse:
    def test_a_forgotten_store_is_told_as_such(self) -> None:
        with pytest.raises(DefinitionError, match=r"\.withdraw: the first argument must be a store, .* not Balance"):
            withdraw(Balance("w1"), withdrawal_id="x", amount=30)  # type: ignore[call-overload]

    def test_the_only_event_is_asked_for_where_there_is_not_exactly_one(self, store: EventStore) -> None:
        @decision
        def make(*, number: int) -> list[WalletClosed]:
            return [WalletClosed(f"w{each}") for each in range(number)]

        assert make(store, number=1).event == WalletClosed("w0")
        with pytest.raises(ValueError, match=r"no event, not exactly 1; use \.events"):
            _ = make(store, number=0).event
        with pytest.raises(ValueError, match="2 events"):
            _ = make(store, number=2).event

    def test_an_event_that_could_not_be_read_is_not_stored(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        with pytest.raises(InvalidInput, match=r"DepositMade\.amount: Expected `int`, got `null`"):
            deposit(store, wallet_id="w1", deposit_id="d", amount=None)  # type: ignore[arg-type]
        assert project(store, Balance("w1")).amount == 100


class TestACall:
    def test_reads_decides_and_appends(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        decided = withdraw(store, Balance("w1"), withdrawal_id="x", amount=30)
        assert decided.event == WithdrawalMade("w1", "x", 30)
        assert (decided.first, decided.position, decided.already) == (2, 2, False)
        assert project(store, Balance("w1")).amount == 70

    def test_raises_what_the_rule_raises_and_writes_nothing(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=10)
        with pytest.raises(InsufficientFunds, match="10"):
            withdraw(store, Balance("w1"), withdrawal_id="x", amount=30)
        assert store.head() == 1

    def test_makes_one_read_and_one_conditional_append(self, watched: Watched) -> None:
        open_wallet(watched, wallet_id="w1", balance=100)
        withdraw(watched, Balance("w1"), withdrawal_id="x", amount=30)
        boundary = Query.of(types=HANDLED, tags={"wallet_id:w1"})
        assert watched.queries == [boundary]
        assert watched.conditions == [None, AppendCondition(boundary, after=1)]

    def test_goes_by_the_head_of_its_read_not_by_the_last_match(self, watched: Watched) -> None:
        open_wallet(watched, wallet_id="w1", balance=100)
        open_wallet(watched, wallet_id="w2", balance=100)
        withdraw(watched, Balance("w1"), withdrawal_id="x", amount=30)
        assert watched.conditions[-1].after == 2

    def test_does_not_take_over_the_state_of_the_projection_it_is_given(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        balance = Balance("w1")
        for number in range(2):
            withdraw(store, balance, withdrawal_id=str(number), amount=10)
        assert balance == Balance("w1")
        assert project(store, balance).amount == 80

    def test_may_be_given_the_projection_by_name(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        withdraw(store, balance=Balance("w1"), withdrawal_id="x", amount=30)
        assert project(store, Balance("w1")).amount == 70


class TestWhatIsReturned:
    def test_may_be_nothing(self, store: EventStore) -> None:
        @decision
        def close_if_open(status: Status) -> WalletClosed | None:
            return WalletClosed(status.wallet_id) if status.open else None

        open_wallet(store, wallet_id="w2", balance=0)
        decided = close_if_open(store, Status("w1"))
        assert (decided.events, decided.position, decided.already) == ((), 1, False)
        assert store.head() == 1

    @pytest.mark.parametrize("collection", [list, tuple, iter])
    def test_may_be_several_events_stored_together(self, store: EventStore, collection: Any) -> None:
        @decision
        def open_two() -> Any:
            made = collection([WalletOpened("a", "Ada", 1), WalletOpened("b", "Bob", 2)])
            return (each for each in made) if collection is iter else made

        decided = open_two(store)
        assert decided.events == (WalletOpened("a", "Ada", 1), WalletOpened("b", "Bob", 2))
        assert (decided.first, decided.position) == (1, 2)

    def test_may_be_an_event_made_by_hand(self, store: EventStore) -> None:
        @decision
        def note() -> Event:
            return Event("Noted", data=b"\x01")

        assert note(store).event.data == b"\x01"
        assert next(iter(store.read())).type == "Noted"

    @pytest.mark.parametrize("wrong", [5, "text", object(), {"a": 1}])
    def test_cannot_be_anything_else(self, store: EventStore, wrong: object) -> None:
        @decision
        def mistaken() -> object:
            return wrong

        with pytest.raises(DefinitionError, match="mistaken"):
            mistaken(store)
        assert store.head() == 0

    def test_cannot_be_a_list_with_anything_else_in_it(self, store: EventStore) -> None:
        @decision
        def mistaken() -> Any:
            return [WalletOpened("a", "Ada", 1), 5]

        with pytest.raises(DefinitionError, match="int is not an event"):
            mistaken(store)
        assert store.head() == 0


class TestTheBoundary:
    def test_is_the_union_over_all_projections(self, watched: Watched) -> None:
        @decision
        def swap(first: Balance, second: Balance, status: Status) -> DepositMade:
            return DepositMade(first.wallet_id, "d", second.amount)

        swap(watched, Balance("w1"), Balance("w2"), Status("w3"))
        union = {
            QueryItem(types=HANDLED, tags={"wallet_id:w1"}),
            QueryItem(types=HANDLED, tags={"wallet_id:w2"}),
            QueryItem(types={"WalletOpened", "WalletClosed"}, tags={"wallet_id:w3"}),
        }
        assert [set(query.items) for query in watched.queries] == [union]
        assert set(watched.conditions[0].fail_if_events_match.items) == union

    def test_has_one_item_for_projections_of_the_same_scope(self, watched: Watched) -> None:
        @decision
        def both(balance: Balance, status: Status) -> None: ...

        both(watched, Balance("w1"), Status("w1"))
        assert watched.queries == [Query.of(types={*HANDLED, "WalletClosed"}, tags={"wallet_id:w1"})]

    def test_covers_projections_in_collections_and_variable_arguments(self, watched: Watched) -> None:
        for name in ("w1", "w2", "w3", "w4"):
            open_wallet(watched, wallet_id=name, balance=int(name[1]))

        @decision
        def total(*balances: Balance, more: list[Balance], by_name: dict[str, Balance]) -> DepositMade:
            everything = [*balances, *more, *by_name.values()]
            return DepositMade("total", "d", sum(balance.amount for balance in everything))

        decided = total(watched, Balance("w1"), Balance("w2"), more=[Balance("w3")], by_name={"x": Balance("w4")})
        assert decided.event.amount == 10
        assert len(watched.conditions[-1].fail_if_events_match.items) == 4

    @pytest.mark.parametrize(
        ("meanwhile", "conflicts"),
        [
            (WithdrawalMade("w1", "y", 1), True),
            (DepositMade("w1", "d", 1), True),
            (WithdrawalMade("w2", "y", 1), False),
            (WalletClosed("w1"), False),
        ],
    )
    def test_is_what_conflicts_and_nothing_else(self, watched: Watched, meanwhile: Any, conflicts: bool) -> None:
        once_only = withdraw.with_retry(Retry(attempts=1))
        open_wallet(watched, wallet_id="w1", balance=100)
        watched.before_append = iter([[encode(meanwhile)]])
        if conflicts:
            with pytest.raises(RetriesExhausted):
                once_only(watched, Balance("w1"), withdrawal_id="x", amount=1)
        else:
            once_only(watched, Balance("w1"), withdrawal_id="x", amount=1)
        assert (watched.head() == 2) is conflicts


class TestStrategies:
    def test_without_projections_nothing_is_read_and_nothing_conflicts(self, watched: Watched) -> None:
        watched.before_append = iter([[encode(DepositMade("w1", "other", 1))]])
        deposit(watched, wallet_id="w1", deposit_id="d", amount=5)
        assert watched.queries == []
        assert watched.conditions == [None]

    def test_a_guard_conflicts_with_its_own_events_only(self, watched: Watched) -> None:
        @decision(retry=Retry(attempts=1))
        def guarded(status: Status, *, deposit_id: str, amount: int) -> DepositMade:
            assert status.open
            return DepositMade(status.wallet_id, deposit_id, amount)

        open_wallet(watched, wallet_id="w1", balance=0)
        watched.before_append = iter([[encode(DepositMade("w1", "other", 1))], [encode(WalletClosed("w1"))]])
        guarded(watched, Status("w1"), deposit_id="d", amount=5)
        with pytest.raises(RetriesExhausted) as refused:
            guarded(watched, Status("w1"), deposit_id="e", amount=5)
        assert refused.value.conflict.type == "WalletClosed"

    def test_an_unchecked_projection_informs_but_does_not_conflict(self, watched: Watched) -> None:
        @decision(retry=Retry(attempts=1))
        def bonus(status: Status, balance: Unchecked[Balance], *others: Unchecked[Balance]) -> DepositMade:
            amount = balance.amount + sum(other.amount for other in others)
            return DepositMade(status.wallet_id, "bonus", amount // 10)

        for name in ("w1", "w2"):
            open_wallet(watched, wallet_id=name, balance=100)
        watched.before_append = iter([[encode(WithdrawalMade("w1", "x", 50)), encode(WithdrawalMade("w2", "x", 50))]])
        assert bonus(watched, Status("w1"), Balance("w1"), Balance("w2")).event.amount == 20
        assert len(watched.queries) == 1
        checked = Query.of(types={"WalletOpened", "WalletClosed"}, tags={"wallet_id:w1"})
        assert watched.conditions[-1] == AppendCondition(checked, after=2)

    def test_with_unchecked_projections_alone_there_is_no_condition(self, watched: Watched) -> None:
        @decision
        def peek(balance: Unchecked[Balance]) -> DepositMade:
            return DepositMade(balance.wallet_id, "d", balance.amount)

        peek(watched, Balance("w1"))
        assert watched.conditions == [None]


class TestMistakes:
    @pytest.mark.parametrize("name", ["once", "checkpoint"])
    def test_a_parameter_with_the_name_of_a_keyword_of_the_decision_is_refused(self, name: str) -> None:
        names: dict[str, Any] = {}
        exec(f"def rule(*, {name}): ...", names)
        with pytest.raises(DefinitionError, match=f"rule: the keyword {name}= .* rename the parameter '{name}'"):
            decision(names["rule"])

    def test_a_rule_that_takes_any_keyword_is_refused(self) -> None:
        """It would be unclear whether once= and checkpoint= are meant for the rule."""
        with pytest.raises(DefinitionError, match=r"\*\*options .* once= and checkpoint= .*; name the parameters"):

            @decision
            def rule(**options: Any) -> None: ...

    def test_an_async_function_needs_an_asyncio_store(self, store: EventStore) -> None:
        @decision
        async def waiting() -> None: ...

        with pytest.raises(DefinitionError, match="needs an asyncio store"):
            waiting(store)
