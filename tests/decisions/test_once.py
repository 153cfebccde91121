"""Idempotency: a decision that was taken before returns its first result."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest

import fencepost
from fencepost import Event, EventStore, InvalidInput, Query, QueryItem, SequencedEvent, aio
from fencepost.decisions import (
    Cached,
    DefinitionError,
    Effect,
    Once,
    RequestMismatch,
    decision,
    encode,
    having,
    project,
)
from fencepost.decisions.inspection import Decision
from fencepost.model.limits import MAX_DATA_BYTES

from .test_deciding import Watched
from .wallets import Balance, DepositMade, InsufficientFunds, WalletOpened, WithdrawalMade, open_wallet, withdraw


def by_withdrawal(withdrawal_id: str) -> Once:
    return having(WithdrawalMade, withdrawal_id=withdrawal_id)


LARGE = Event("WithdrawalMade", data=bytes(MAX_DATA_BYTES), tags={"withdrawal_id:all"})

withdraw_once = decision(once=by_withdrawal)(withdraw.function)


class Interposed(Watched):
    """Stores events before the n-th read, counted from the last assignment of `before_read`."""

    _before: Mapping[int, list[Event]] = MappingProxyType({})
    _reads = 0

    @property
    def before_read(self) -> Mapping[int, list[Event]]:
        return self._before

    @before_read.setter
    def before_read(self, events: Mapping[int, list[Event]]) -> None:
        self._before, self._reads = events, 0

    def read(self, query: Query | None = None, **options: Any) -> Any:
        self._reads += 1
        if self._reads in self._before:
            EventStore.append(self, self._before[self._reads])
        return super().read(query, **options)


@pytest.fixture(params=["plain", "cached"])
def place(request: pytest.FixtureRequest, store: EventStore) -> Any:
    """A plain store, and one with snapshots: earlier decisions are found on both."""
    return store if request.param == "plain" else Cached(store)


class TestByTheEvent:
    def test_the_second_time_nothing_is_written(self, place: Any, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        first = withdraw_once(place, Balance("w1"), withdrawal_id="x", amount=60)
        again = withdraw_once(place, Balance("w1"), withdrawal_id="x", amount=60)
        assert (again.event, again.position, again.already) == (first.event, first.position, True)
        assert store.head() == 2

    def test_it_is_recognised_although_the_rule_would_refuse_now(self, place: Any, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        withdraw_once(place, Balance("w1"), withdrawal_id="x", amount=60)
        with pytest.raises(InsufficientFunds):
            withdraw_once(place, Balance("w1"), withdrawal_id="y", amount=60)
        assert withdraw_once(place, Balance("w1"), withdrawal_id="x", amount=60).already

    def test_it_is_searched_for_everywhere(self, place: Any, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        open_wallet(store, wallet_id="w2", balance=100)
        withdraw_once(place, Balance("w1"), withdrawal_id="x", amount=60)
        again = withdraw_once(place, Balance("w2"), withdrawal_id="x", amount=1)
        assert again.event == WithdrawalMade("w1", "x", 60)
        assert project(place, Balance("w2")).amount == 100

    def test_fields_that_must_be_the_same_tell_another_request(self, place: Any, store: EventStore) -> None:
        def same(balance: Balance, withdrawal_id: str, amount: int) -> Once:
            return by_withdrawal(withdrawal_id).same(wallet_id=balance.wallet_id, amount=amount)

        strict = decision(once=same)(withdraw.function)
        open_wallet(store, wallet_id="w1", balance=100)
        strict(place, Balance("w1"), withdrawal_id="x", amount=60)
        assert strict(place, Balance("w1"), withdrawal_id="x", amount=60).already
        with pytest.raises(RequestMismatch, match=r"position 2 .* other values of wallet_id, amount") as refused:
            strict(place, Balance("w2"), withdrawal_id="x", amount=61)
        assert (refused.value.fields, refused.value.earlier.position) == (("wallet_id", "amount"), 2)
        assert store.head() == 2

    @pytest.mark.parametrize(
        ("once", "problem"),
        [
            (lambda: by_withdrawal("x").same(colour="red"), "'colour'"),
            (lambda: Once(QueryItem(types={"WithdrawalMade"})).same(amount=1), "having"),
        ],
    )
    def test_fields_that_must_be_the_same_are_fields_of_the_event(self, once: Any, problem: str) -> None:
        with pytest.raises(DefinitionError, match=problem):
            once()

    def test_it_is_found_before_a_snapshot(self, store: EventStore) -> None:
        cached = Cached(store)
        open_wallet(store, wallet_id="w1", balance=100)
        for number in range(10):
            withdraw_once(cached, Balance("w1"), withdrawal_id=str(number), amount=1)
        withdraw_once(cached, Balance("w1"), withdrawal_id="the rest", amount=90)
        assert withdraw_once(cached, Balance("w1"), withdrawal_id="0", amount=1).position == 2
        assert project(cached, Balance("w1")).amount == 0

    def test_from_a_snapshot_the_earlier_call_is_searched_up_to_the_head_of_the_state(self) -> None:
        with Watched() as store:
            cached = Cached(store)
            open_wallet(store, wallet_id="w1", balance=100)
            for number in range(5):
                withdraw_once(cached, Balance("w1"), withdrawal_id=str(number), amount=1)
            store.queries.clear()
            assert not withdraw_once(cached, Balance("w1"), withdrawal_id="new", amount=1).already
            assert len(store.queries) == 2
            again = withdraw_once(cached, Balance("w1"), withdrawal_id="0", amount=1)
            assert (again.position, again.already) == (2, True)

    def test_an_earlier_time_is_told_although_the_rule_would_do_nothing_now(self, store: EventStore) -> None:
        @decision(once=by_withdrawal)
        def empty(balance: Balance, *, withdrawal_id: str) -> WithdrawalMade | None:
            if balance.amount == 0:
                return None
            return WithdrawalMade(balance.wallet_id, withdrawal_id, balance.amount)

        cached = Cached(store)
        open_wallet(store, wallet_id="w1", balance=100)
        for number in range(5):
            withdraw(store, Balance("w1"), withdrawal_id=str(number), amount=1)
        project(cached, Balance("w1"))
        first = empty(cached, Balance("w1"), withdrawal_id="all")
        assert (first.event.amount, first.already) == (95, False)
        again = empty(cached, Balance("w1"), withdrawal_id="all")
        assert (again.event.amount, again.already) == (95, True)
        assert empty(cached, Balance("w1"), withdrawal_id="nothing").events == ()

    @pytest.mark.parametrize(
        "instead",
        [
            pytest.param([DepositMade("w1", "d", 1)], id="what once would not find"),
            pytest.param([LARGE] * 70, id="too much for an append"),
            pytest.param([DepositMade("w1", "x" * 2_000, 1)], id="a tag that is too long"),
            pytest.param([object()], id="no event"),
        ],
    )
    def test_an_earlier_time_is_told_although_what_is_decided_now_is_refused(
        self, place: Any, store: EventStore, instead: list[Any]
    ) -> None:
        @decision(once=by_withdrawal)
        def empty(balance: Balance, *, withdrawal_id: str) -> list[Any]:
            return [WithdrawalMade("w1", withdrawal_id, balance.amount)] if balance.amount else instead

        open_wallet(store, wallet_id="w1", balance=5)
        for number in range(5):
            withdraw(store, Balance("w1"), withdrawal_id=str(number), amount=0)
        first = empty(place, Balance("w1"), withdrawal_id="all")
        again = empty(place, Balance("w1"), withdrawal_id="all")
        assert (again.events, again.position, again.already) == (first.events, first.position, True)
        with pytest.raises((DefinitionError, InvalidInput)):
            empty(place, Balance("w1"), withdrawal_id="another")

    def test_an_earlier_time_is_told_although_the_rule_without_projections_refuses_now(self, store: EventStore) -> None:
        closed: list[str] = []

        @decision(once=lambda wallet_id: having(WalletOpened, wallet_id=wallet_id))
        def create(*, wallet_id: str) -> WalletOpened:
            if closed:
                raise InsufficientFunds(closed)
            return WalletOpened(wallet_id, "Ada", 0)

        create(store, wallet_id="w1")
        closed.append("today")
        assert create(store, wallet_id="w1").already
        with pytest.raises(InsufficientFunds):
            create(store, wallet_id="w2")

    def test_the_search_is_part_of_the_one_read(self) -> None:
        with Watched() as store:
            withdraw_once(store, Balance("w1"), withdrawal_id="x", amount=0)
            assert len(store.queries) == 1

    def test_without_projections_only_the_earlier_call_is_read(self) -> None:
        @decision(once=lambda wallet_id: having(WalletOpened, wallet_id=wallet_id))
        def create(*, wallet_id: str, owner: str) -> WalletOpened:
            return WalletOpened(wallet_id, owner, 0)

        with Watched() as store:
            assert not create(store, wallet_id="w1", owner="Ada").already
            assert store.queries == [Query.of(types={"WalletOpened"}, tags={"wallet_id:w1"})]
            again = create(store, wallet_id="w1", owner="Bob")
            assert (again.event.owner, again.already) == ("Ada", True)
            assert store.head() == 1

    def test_a_race_that_was_lost_is_told_like_a_repetition(self) -> None:
        with Watched() as store:
            open_wallet(store, wallet_id="w1", balance=100)
            store.before_append = iter([[encode(WithdrawalMade("w1", "x", 60))]])
            decided = withdraw_once(store, Balance("w1"), withdrawal_id="x", amount=60)
            assert (decided.already, decided.position, store.head()) == (True, 2, 2)

    def test_the_same_request_many_times_at_once_is_applied_once(self, address: str) -> None:
        with fencepost.open(address) as store:
            open_wallet(store, wallet_id="w1", balance=100)
            results: list[Any] = []

            def request() -> None:
                results.append(withdraw_once(store, Balance("w1"), withdrawal_id="x", amount=60))

            threads = [threading.Thread(target=request) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(result.already for result in results) == [False] + [True] * 7
            assert {result.position for result in results} == {2}
            assert project(store, Balance("w1")).amount == 40


TWIN = encode(WithdrawalMade("w1", "all", 100))


class TestATwinThatIsStoredBetweenTwoReads:
    """An identical request takes the decision while this one reads: both have the same result."""

    @pytest.mark.parametrize("argument", ["a plain value", ["not", "plain"]])
    @pytest.mark.parametrize("refuses", [True, False])
    @pytest.mark.parametrize("read", [1, 2, 3])
    def test_answers_a_rule_that_would_refuse_or_do_nothing_after_it(
        self, argument: object, refuses: bool, read: int
    ) -> None:
        @decision(once=by_withdrawal)
        def empty(balance: Balance, *, withdrawal_id: str, argument: object) -> WithdrawalMade | None:
            if balance.amount == 0:
                if refuses:
                    raise InsufficientFunds(balance.amount)
                return None
            return WithdrawalMade(balance.wallet_id, withdrawal_id, balance.amount)

        with Interposed() as store:
            cached = Cached(store)
            store.append([encode(WalletOpened("w1", "Ada", 100)), *[encode(DepositMade("w1", "d", 0))] * 4])
            project(cached, Balance("w1"))
            store.before_read = {read: [TWIN]}
            decided = empty(cached, Balance("w1"), withdrawal_id="all", argument=argument)
            assert decided.event == WithdrawalMade("w1", "all", 100)
            assert store.head() == 6

    @pytest.mark.parametrize("read", [1, 2, 3])
    async def test_answers_a_rule_that_is_an_async_def(self, read: int) -> None:
        @decision(once=by_withdrawal)
        async def empty(balance: Balance, *, withdrawal_id: str) -> WithdrawalMade:
            if balance.amount == 0:
                raise InsufficientFunds(balance.amount)
            return WithdrawalMade(balance.wallet_id, withdrawal_id, balance.amount)

        async with await aio.open("memory:") as store:
            cached = Cached(store)
            await store.append([encode(WalletOpened("w1", "Ada", 100)), *[encode(DepositMade("w1", "d", 0))] * 4])
            await project(cached, Balance("w1"))
            read_store, numbers = store.read, count(1)

            class Reading:
                def __init__(self, *args: Any, **options: Any) -> None:
                    self._args, self._options, self._number = args, options, next(numbers)

                async def __aiter__(self) -> AsyncIterator[SequencedEvent]:
                    if self._number == read:
                        await store.append([TWIN])
                    reading = read_store(*self._args, **self._options)
                    async for event in reading:
                        yield event
                    self.head = reading.head

            store.read = Reading  # type: ignore[assignment, method-assign]
            decided = await empty(cached, Balance("w1"), withdrawal_id="all")
            assert decided.event == WithdrawalMade("w1", "all", 100)
            assert await store.head() == 6


class TestByHand:
    def test_the_types_count_as_well_as_the_tags(self, place: Any, store: EventStore) -> None:
        """Other events with the tag, and events read for the projection, do not count as an earlier call."""
        once = Once(QueryItem(types={"WithdrawalMade"}, tags={"wallet_id:w1"}))
        call: Decision[..., Any] = withdraw
        open_wallet(store, wallet_id="w1", balance=100)
        assert not call(place, Balance("w1"), withdrawal_id="x", amount=60, once=once).already
        again = call(place, Balance("w1"), withdrawal_id="y", amount=60, once=once)
        assert (again.event, again.position, again.already) == (WithdrawalMade("w1", "x", 60), 2, True)


class TestTogether:
    def test_the_call_may_say_once_instead_of_the_decision(self, store: EventStore) -> None:
        call: Decision[..., Any] = withdraw
        open_wallet(store, wallet_id="w1", balance=100)
        for _ in range(2):
            decided = call(
                store, Balance("w1"), withdrawal_id="x", amount=60, once=having(WithdrawalMade, withdrawal_id="x")
            )
        assert decided.already

    def test_parameters_may_be_given_by_place_or_left_out(self, store: EventStore) -> None:
        @decision(once=lambda key: having(DepositMade, deposit_id=key))
        def add(amount: int, key: str = "d") -> DepositMade:
            return DepositMade("w1", key, amount)

        add(store, 5)
        assert add(store, 6).already
        assert add(store, 6, "d").already
        assert not add(store, 6, "e").already

    def test_an_effect_is_not_made_again(self, store: EventStore) -> None:
        calls: list[int] = []

        @decision(once=lambda withdrawal_id: having(WithdrawalMade, withdrawal_id=withdrawal_id))
        def pay(balance: Balance, *, withdrawal_id: str, charge: Any) -> WithdrawalMade:
            charge()
            return WithdrawalMade(balance.wallet_id, withdrawal_id, 1)

        cached = Cached(store)
        for place in (store, store, cached):
            pay(place, Balance("w1"), withdrawal_id="x", charge=Effect(lambda: calls.append(1)))
        for number in range(5):
            store.append([encode(DepositMade("w1", str(number), 1))])
        project(cached, Balance("w1"))
        pay(cached, Balance("w1"), withdrawal_id="x", charge=Effect(lambda: calls.append(1)))
        pay(cached, Balance("w1"), withdrawal_id="x", charge=lambda: calls.append(1))
        assert calls == [1]

    def test_an_effect_is_not_made_again_by_a_rule_without_projections(self, store: EventStore) -> None:
        calls: list[int] = []

        @decision(once=lambda deposit_id: having(DepositMade, deposit_id=deposit_id))
        def receive(*, deposit_id: str, charge: Any) -> DepositMade:
            charge()
            return DepositMade("w1", deposit_id, 1)

        for _ in range(2):
            receive(store, deposit_id="d", charge=Effect(lambda: calls.append(1)))
        assert calls == [1]


class TestMistakes:
    def test_once_that_would_never_be_found_is_refused(self, store: EventStore) -> None:
        @decision(once=lambda deposit_id: having(WithdrawalMade, withdrawal_id=deposit_id))
        def wrong(*, deposit_id: str) -> DepositMade:
            return DepositMade("w1", deposit_id, 1)

        with pytest.raises(DefinitionError, match="WithdrawalMade with"):
            wrong(store, deposit_id="d")
        assert store.head() == 0

    def test_once_asks_for_parameters_that_there_are(self) -> None:
        with pytest.raises(DefinitionError, match="'order'"):

            @decision(once=lambda order: having(DepositMade, deposit_id=order))
            def wrong(*, deposit_id: str) -> None: ...

    def test_once_is_a_command_id_or_an_event(self, store: EventStore) -> None:
        call: Decision[..., Any] = open_wallet
        with pytest.raises(DefinitionError, match="command id"):
            call(store, wallet_id="w1", balance=1, once=5)


@pytest.mark.parametrize("once", [None, "a command that was never given"])
def test_events_whose_ids_are_stored_are_the_first_result(store: EventStore, once: str | None) -> None:
    id = uuid4()

    @decision
    def note() -> Event:
        return Event("Noted", data=b"{}", id=id)

    call: Decision[..., Any] = note
    first = call(store)
    store.append([Event("Between")])
    again = call(store, once=once) if once else call(store)
    assert (first.already, again.already) == (False, True)
    assert (again.position, [event.id for event in again.events]) == (first.position, [id])
