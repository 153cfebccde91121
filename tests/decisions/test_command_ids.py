"""Command ids: each belongs to a decision and its arguments, however often and wherever it is given."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

import fencepost
from fencepost import Event, EventStore, InvalidInput, SequencedEvent
from fencepost.decisions import (
    Cached,
    CommandId,
    DefinitionError,
    Effect,
    RequestMismatch,
    context,
    decision,
    encode,
    project,
)
from fencepost.decisions.once import arguments_digest

from .test_deciding import Watched
from .wallets import Balance, DepositMade, WalletOpened, WithdrawalMade, deposit, open_wallet, withdraw


@pytest.fixture(params=["plain", "cached"])
def place(request: pytest.FixtureRequest, store: EventStore) -> Any:
    """A store, and one with snapshots."""
    return store if request.param == "plain" else Cached(store)


class TestTheSameRequest:
    @pytest.mark.parametrize("command", ["c-1", "with : and é", UUID(int=5)])
    def test_is_answered_with_the_first_result(self, place: Any, store: EventStore, command: Any) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        first = withdraw(place, Balance("w1"), withdrawal_id="x", amount=60, once=command)
        again = withdraw(place, Balance("w1"), withdrawal_id="x", amount=60, once=command)
        assert (again.event, again.position, again.already) == (first.event, 2, True)
        assert f"command_id:{withdraw.name}:{command}" in list(store.read())[1].tags

    def test_may_be_called_in_another_way(self, store: EventStore) -> None:
        withdraw(store, Balance("w1"), withdrawal_id="x", amount=0, once="c-1")
        assert withdraw(store, balance=Balance("w1"), amount=0, withdrawal_id="x", once="c-1").already
        assert withdraw.once("c-1")(store, Balance(wallet_id="w1"), withdrawal_id="x", amount=0).already

    def test_is_known_by_all_its_events(self, store: EventStore) -> None:
        @decision
        def open_two() -> list[WalletOpened]:
            return [WalletOpened("a", "Ada", 1), WalletOpened("b", "Bob", 2)]

        first = open_two(store, once="c-1")
        again = open_two(store, once="c-1")
        assert again.events == first.events
        assert (again.first, again.position, again.already) == (1, 2, True)

    def test_gives_events_of_unknown_classes_as_they_are_stored(self, store: EventStore) -> None:
        @decision
        def note() -> Any:
            return Event("Noted", data=b"\x01")

        note(store, once="c-1")
        (event,) = note(store, once="c-1").events
        assert isinstance(event, SequencedEvent)
        assert event.data == b"\x01"

    def test_may_have_other_effects_and_another_context(self, store: EventStore) -> None:
        calls: list[int] = []

        @decision
        def pay(balance: Balance, *, amount: int, charge: Any) -> WithdrawalMade:
            charge()
            return WithdrawalMade(balance.wallet_id, "x", amount)

        for user in ("ada", "bob"):
            with context(user=user):
                pay(store, Balance("w1"), amount=5, charge=Effect(lambda: calls.append(1)), once="c-1")
        assert (calls, store.head()) == ([1], 1)

    def test_at_the_same_time_is_applied_once(self, address: str) -> None:
        with fencepost.open(address) as store:
            open_wallet(store, wallet_id="w1", balance=100)
            results: list[Any] = []

            def request(amount: int) -> None:
                try:
                    results.append(withdraw(store, Balance("w1"), withdrawal_id="x", amount=amount, once="c-1"))
                except RequestMismatch as error:
                    results.append(error)

            threads = [threading.Thread(target=request, args=(60 + number % 2,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            decided = [result for result in results if not isinstance(result, RequestMismatch)]
            assert sorted(result.already for result in decided) == [False, True, True, True]
            assert len({result.event.amount for result in decided}) == 1
            assert project(store, Balance("w1")).amount == 100 - decided[0].event.amount

    def test_after_a_crash_of_the_rule_is_applied(self, store: EventStore) -> None:
        crashes = iter([RuntimeError("power cut"), None])

        @decision
        def frail(balance: Balance) -> WithdrawalMade:
            crash = next(crashes)
            if crash is not None:
                raise crash
            return WithdrawalMade(balance.wallet_id, "x", 1)

        with pytest.raises(RuntimeError):
            frail(store, Balance("w1"), once="c-1")
        assert not frail(store, Balance("w1"), once="c-1").already
        assert frail(store, Balance("w1"), once="c-1").already

    def test_is_the_same_when_a_parameter_with_a_default_was_added(self, store: EventStore) -> None:
        def old(*, amount: int) -> DepositMade:
            return DepositMade("w1", "d", amount)

        def new(*, amount: int, currency: str = "EUR", tags: Any = ()) -> DepositMade:
            return DepositMade("w1", "d", amount)

        decision(name="add")(old)(store, amount=5, once="c-1")
        changed = decision(name="add")(new)
        assert changed(store, amount=5, once="c-1").already
        assert changed(store, amount=5, currency="EUR", tags=[], once="c-1").already
        with pytest.raises(RequestMismatch):
            changed(store, amount=5, currency="USD", once="c-1")

    def test_is_known_though_its_events_were_copied_from_another_one(self, store: EventStore) -> None:
        @decision
        def copy(*, of: str) -> Event:
            (stored,) = [event for event in store.read() if f"wallet_id:{of}" in event.tags]
            return Event(stored.type, data=stored.data, tags={"wallet_id:copy"}, metadata=stored.metadata)

        open_wallet(store, wallet_id="w1", balance=1, once="c-1")
        copy(store, of="w1", once="c-2")
        assert copy(store, of="w1", once="c-2").already


class TestAnotherRequest:
    def test_with_other_arguments_is_refused(self, place: Any, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        withdraw(place, Balance("w1"), withdrawal_id="x", amount=60, once="c-1")
        with pytest.raises(RequestMismatch, match="a request with other arguments; repeat the original") as refused:
            withdraw(place, Balance("w1"), withdrawal_id="x", amount=61, once="c-1")
        assert (refused.value.earlier.position, refused.value.fields, store.head()) == (2, (), 2)

    def test_about_another_scope_is_refused(self, store: EventStore) -> None:
        withdraw(store, Balance("w1"), withdrawal_id="x", amount=0, once="c-1")
        with pytest.raises(RequestMismatch):
            withdraw(store, Balance("w2"), withdrawal_id="x", amount=0, once="c-1")

    def test_that_the_rule_would_refuse_is_refused_for_its_id(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        withdraw(store, Balance("w1"), withdrawal_id="x", amount=60, once="c-1")
        with pytest.raises(RequestMismatch):
            withdraw(store, Balance("w1"), withdrawal_id="x", amount=1_000, once="c-1")

    def test_without_projections_is_refused_by_the_append(self, store: EventStore) -> None:
        deposit(store, wallet_id="w1", deposit_id="d", amount=5, once="c-1")
        with pytest.raises(RequestMismatch):
            deposit(store, wallet_id="w1", deposit_id="d", amount=6, once="c-1")
        assert store.head() == 1

    def test_that_comes_in_between_is_refused(self) -> None:
        with Watched() as store:
            rival = deposit.once("c-1")
            rival(store, wallet_id="w1", deposit_id="d", amount=5)
            (event,) = store.read(fencepost.Query.all())
            with Watched() as other:
                other.before_append = iter([[event.event]])
                with pytest.raises(RequestMismatch):
                    deposit(other, wallet_id="w1", deposit_id="d", amount=6, once="c-1")
                assert other.head() == 1

    def test_is_refused_where_nothing_can_be_compared(self, store: EventStore) -> None:
        tag = f"command_id:{deposit.name}:c-1"
        store.append([encode(DepositMade("w1", "d", 5), tag=tag)])
        with pytest.raises(RequestMismatch):
            deposit(store, wallet_id="w1", deposit_id="d", amount=5, once="c-1")

    def test_may_be_retried_under_an_id_of_its_own(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100)
        withdraw(store, Balance("w1"), withdrawal_id="x", amount=60, once="c-1")
        assert not withdraw(store, Balance("w1"), withdrawal_id="y", amount=1, once="c-2").already


class TestTheScope:
    def test_is_the_decision(self, store: EventStore) -> None:
        open_wallet(store, wallet_id="w1", balance=100, once="c-1")
        decided = deposit(store, wallet_id="w1", deposit_id="d", amount=5, once="c-1")
        assert (decided.event, decided.already) == (DepositMade("w1", "d", 5), False)

    def test_is_the_decision_also_where_both_have_one_name(self, store: EventStore) -> None:
        def rules() -> Any:
            def cancel(*, id: str) -> DepositMade:
                return DepositMade("w1", id, 1)

            return cancel

        orders, invoices = rules(), rules()
        orders.__module__, invoices.__module__ = "shop.orders", "shop.invoices"
        assert not decision(orders)(store, id="1", once="c-1").already
        assert not decision(invoices)(store, id="1", once="c-1").already

    def test_can_be_shared_by_name(self, store: EventStore) -> None:
        @decision
        def deposit_at(*, wallet_id: str, deposit_id: str, amount: int, cursor: int) -> DepositMade:
            return DepositMade(wallet_id, deposit_id, amount)

        shared = CommandId("c-1", scope="deposits", arguments={"amount": 5})
        deposit(store, wallet_id="w1", deposit_id="d", amount=5, once=shared)
        assert deposit_at(store, wallet_id="w1", deposit_id="d", amount=5, cursor=1, once=shared).already
        other = CommandId("c-1", scope="deposits", arguments={"amount": 6})
        with pytest.raises(RequestMismatch):
            deposit_at(store, wallet_id="w1", deposit_id="d", amount=6, cursor=1, once=other)

    def test_does_not_blur_with_the_id(self, store: EventStore) -> None:
        deposit(store, wallet_id="w1", deposit_id="d", amount=5, once=CommandId("b:c", scope="a"))
        with pytest.raises(InvalidInput, match=r"once\.scope.*':'"):
            deposit(store, wallet_id="w1", deposit_id="d", amount=5, once=CommandId("c", scope="a:b"))

    def test_stays_when_the_decision_keeps_its_name(self, store: EventStore) -> None:
        decision(name="wallet.deposit")(deposit.function)(store, wallet_id="w1", deposit_id="d", amount=5, once="c-1")

        @decision(name="wallet.deposit")
        def deposit_money(*, wallet_id: str, deposit_id: str, amount: int) -> DepositMade:
            return DepositMade(wallet_id, deposit_id, amount)

        assert deposit_money(store, wallet_id="w1", deposit_id="d", amount=5, once="c-1").already

    def test_of_a_lambda_must_be_named(self, store: EventStore) -> None:
        with pytest.raises(DefinitionError, match=r"decision\(name=\.\.\.\)"):
            decision(lambda: DepositMade("w1", "d", 1))(store, once="c-1")
        assert not decision(name="d")(lambda: DepositMade("w1", "d", 1))(store, once="c-1").already

    def test_of_a_program_is_that_of_its_module(self, tmp_path: Path) -> None:
        (tmp_path / "shop.py").write_text(
            "from fencepost.decisions import decision\n\n\n@decision\ndef sell() -> None: ...\n\n\nprint(sell.name)\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ways = (["shop.py"], ["-m", "shop"], ["-c", "import shop"])
        told = [
            subprocess.run([sys.executable, *way], cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
            for way in ways
        ]
        assert told == ["shop.sell\n"] * 3


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    article: str
    price: Decimal


class Order(msgspec.Struct):
    lines: list[Line]
    options: set[str]


class Address(pydantic.BaseModel):
    street: str
    since: datetime


MOMENT = datetime(2030, 1, 1, tzinfo=timezone.utc)


class TestTheDigest:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            5,
            2.5,
            float("inf"),
            "text",
            b"\xff",
            Decimal("1.50"),
            MOMENT,
            MOMENT.date(),
            timedelta(seconds=1),
            UUID(int=7),
            Colour.RED,
            [1, (2, "x")],
            {"b": 1, "a": [Balance("w1")]},
            frozenset({"a", "b", "c"}),
            Line("a", Decimal(1)),
            Order([Line("a", Decimal(1))], {"x", "y", "z"}),
            Address(street="High Street", since=MOMENT),
            Balance("w1"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_is_of_whatever_a_request_holds(self, value: Any) -> None:
        digest = arguments_digest({"value": value}, "decide")
        assert digest == arguments_digest({"value": value}, "decide")
        assert digest != arguments_digest({"value": "another"}, "decide")
        assert digest != arguments_digest({"other": value}, "decide")

    @pytest.mark.parametrize(
        ("one", "other"),
        [(1, "1"), (1, True), (1, 1.0), (0, None), ("", None), (float("inf"), None), ([], [[]]), ("ab", b"ab")],
    )
    def test_tells_values_apart(self, one: Any, other: Any) -> None:
        assert arguments_digest({"value": one}, "decide") != arguments_digest({"value": other}, "decide")

    def test_is_the_same_in_every_process_and_version(self) -> None:
        """Written down: a digest that changes would refuse every request that is repeated across an upgrade."""
        arguments = {
            "amount": 5,
            "lines": [Line("a", Decimal("1.50"))],
            "options": {"x", "y", "z"},
            "balance": Balance("w1"),
            "at": MOMENT,
        }
        assert arguments_digest(arguments, "decide") == "1:87679e09e5b6c377a6d0c9d8e408df7a"

    def test_of_what_has_no_lasting_form_is_refused(self, store: EventStore) -> None:
        @decision
        def act(*, amount: int, clock: Any) -> DepositMade:
            return DepositMade("w1", "d", amount)

        with pytest.raises(DefinitionError, match=r"'clock', of type object.*once=CommandId\(id, arguments=\.\.\.\)"):
            act(store, amount=5, clock=object(), once="c-1")
        assert store.head() == 0
        for _ in range(2):
            decided = act(store, amount=5, clock=object(), once=CommandId("c-1", arguments={"amount": 5}))
        assert decided.already

    @pytest.mark.parametrize(
        "value",
        [{1: 2}, {1, "a"}, 2**70, "\ud800", lambda: None, iter([])],
        ids=["int keys", "mixed set", "large int", "surrogate", "function", "iterator"],
    )
    def test_of_what_msgspec_cannot_put_in_order_is_refused(self, value: Any) -> None:
        with pytest.raises(DefinitionError, match="'value'"):
            arguments_digest({"value": value}, "decide")

    def test_of_arguments_that_the_function_does_not_take_is_refused_as_a_call(self, store: EventStore) -> None:
        with pytest.raises(TypeError, match="colour"):
            deposit(store, wallet_id="w1", deposit_id="d", amount=5, colour="red", once="c-1")


@pytest.mark.parametrize(
    "wrong",
    ["", "x" * 2_000, CommandId("c-1", scope=""), CommandId("", scope="a")],
    ids=["empty", "long", "no scope", "no id"],
)
def test_an_id_that_cannot_be_a_tag_is_refused(store: EventStore, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="once"):
        deposit(store, wallet_id="w1", deposit_id="d", amount=5, once=wrong)
    assert store.head() == 0
