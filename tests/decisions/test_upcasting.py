"""Upcasting: bytes that were written by older versions are read by the newest class."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from fencepost import EventStore, SequencedEvent
from fencepost.decisions import (
    DefinitionError,
    EventTypes,
    EventUnreadable,
    Projection,
    Tag,
    decision,
    encode,
    event,
    on,
    project,
)


def in_cents(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "amount": fields["amount"] * 100}


def with_currency(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "currency": "EUR"}


UPGRADES = {1: in_cents, 2: with_currency}

# As they were written, byte for byte.
OLD = {
    1: (b'{"wallet_id":"w1","amount":5}', {}),
    2: (b'{"wallet_id":"w1","amount":500}', {"event_version": "2"}),
    3: (b'{"wallet_id":"w1","amount":500,"currency":"EUR"}', {"event_version": "3"}),
}


@event(type="PaymentMade", version=3, upgrades=UPGRADES)
class Plain:
    wallet_id: Tag
    amount: int
    currency: str


@event(type="PaymentMade", version=3, upgrades=UPGRADES)
@dataclasses.dataclass
class Dataclass:
    wallet_id: Tag
    amount: int
    currency: str


@event(type="PaymentMade", version=3, upgrades=UPGRADES)
class Struct(msgspec.Struct):
    wallet_id: Tag
    amount: int
    currency: str


@event(type="PaymentMade", version=3, upgrades=UPGRADES)
class Model(pydantic.BaseModel):
    wallet_id: Tag
    amount: int
    currency: str


KINDS: list[Any] = [Plain, Dataclass, Struct, Model]


def read(cls: Any, data: bytes, metadata: dict[str, str]) -> Any:
    return EventTypes(cls).decode(SequencedEvent(7, "PaymentMade", frozenset(), data, 0, None, metadata))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", OLD)
def test_each_version_reads_as_the_newest(kind: Any, version: int) -> None:
    assert read(kind, *OLD[version]) == kind(wallet_id="w1", amount=500, currency="EUR")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_now_says_its_version(kind: Any) -> None:
    encoded = encode(kind(wallet_id="w1", amount=500, currency="EUR"), {"user": "ada"})
    assert (encoded.data, encoded.metadata) == (OLD[3][0], {"event_version": "3", "user": "ada"})


def test_the_first_version_says_nothing() -> None:
    @event
    class First:
        pass

    assert encode(First()).metadata == {}


def test_an_upgraded_event_is_checked_like_any_other() -> None:
    def with_mistake(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "curency": "EUR"}

    @event(type="PaymentMade", version=2, upgrades={1: with_mistake})
    class Paid:
        wallet_id: Tag
        amount: int

    with pytest.raises(EventUnreadable, match=r"version 1 of 2.*curency"):
        read(Paid, *OLD[1])


def test_an_upgrade_that_misses_a_field_is_told_with_the_event() -> None:
    with pytest.raises(EventUnreadable, match=r"position 7.*'amount'.*version 1 of 3"):
        read(Plain, b'{"wallet_id":"w1"}', {})


@pytest.mark.parametrize(
    ("upgrade", "problem"),
    [
        (lambda fields: fields["amount"] / 0, r"upgrades\[1\], <lambda> \(.*test_upcasting.py:\d+\), raised Zero"),
        (lambda fields: fields.amount, r"upgrades\[1\].*raised AttributeError: "),
        (lambda fields: fields.update(currency="EUR"), r"upgrades\[1\].*returned None instead of a dict"),
    ],
)
def test_an_upgrade_that_fails_is_told_with_the_event(upgrade: Any, problem: str) -> None:
    @event(type="PaymentMade", version=2, upgrades={1: upgrade})
    class Paid:
        wallet_id: Tag
        amount: int

    with pytest.raises(EventUnreadable, match=rf"'PaymentMade' at position 7: {problem}") as raised:
        read(Paid, *OLD[1])
    assert raised.value.position == 7


def test_an_upgrade_that_changes_its_argument_does_no_harm() -> None:
    def in_place(fields: dict[str, Any]) -> dict[str, Any]:
        fields["amount"] += 1
        return fields

    @event(type="PaymentMade", version=2, upgrades={1: in_place})
    class Paid:
        wallet_id: Tag
        amount: int

    assert [read(Paid, *OLD[1]).amount for _ in range(2)] == [6, 6]


def test_a_newer_version_than_the_class_is_refused() -> None:
    @event(type="PaymentMade")
    class Old:
        wallet_id: Tag
        amount: int

    with pytest.raises(EventUnreadable, match="version 2, but the class has version 1"):
        read(Old, *OLD[2])


@pytest.mark.parametrize("version", ["", "0", "-1", "two", "\u0662", "9" * 5_000])
def test_a_malformed_version_is_refused(version: str) -> None:
    with pytest.raises(EventUnreadable, match="event_version"):
        read(Plain, OLD[1][0], {"event_version": version})


def test_another_codec_upgrades_as_well() -> None:
    @event(type="PaymentMade", version=3, upgrades=UPGRADES, codec="msgpack")
    class Paid:
        wallet_id: Tag
        amount: int
        currency: str

    assert read(Paid, msgspec.msgpack.encode({"wallet_id": "w1", "amount": 5}), {}) == Paid("w1", 500, "EUR")


@pytest.mark.parametrize(
    ("version", "upgrades"), [(0, {}), (2, {}), (3, {1: in_cents}), (1, {1: in_cents}), (2, {1: in_cents, 2: in_cents})]
)
def test_the_way_from_every_older_version_must_be_complete(version: int, upgrades: dict[int, Any]) -> None:
    with pytest.raises(DefinitionError, match="version"):

        @event(version=version, upgrades=upgrades)
        class Wrong:
            pass


def test_a_projection_folds_old_and_new_events_together(store: EventStore) -> None:
    class Paid(Projection):
        wallet_id: Tag
        cents: int = 0

        @on
        def _(self, event: Plain) -> None:
            self.cents += event.amount

    @event(type="PaymentMade")
    class First:
        wallet_id: Tag
        amount: int

    store.append([encode(First("w1", 5)), encode(Plain("w1", 7, "EUR"))])
    assert project(store, Paid("w1")).cents == 507


class TestARollingDeployment:
    """Readers first: every process reads version 2 and writes version 1. Then writers."""

    @pytest.fixture
    def classes(self) -> tuple[Any, Any]:
        @event(type="PaymentMade")
        class Then:
            wallet_id: Tag
            amount: int

        @event(type="PaymentMade", version=2, upgrades={1: in_cents})
        class Now:
            wallet_id: Tag
            amount: int

        return Then, Now

    def paid(self, cls: Any) -> Any:
        class Paid(Projection):
            wallet_id: Tag
            amounts: tuple[int, ...] = ()

            @on
            def _(self, event: cls) -> None:
                self.amounts += (event.amount,)

        return Paid

    def test_old_code_refuses_to_decide_on_a_new_version(self, classes: tuple[Any, Any], store: EventStore) -> None:
        then, now = classes
        store.append([encode(then("w1", 5)), encode(now("w1", 700))])

        @decision
        def pay(paid: Any) -> Any:
            return then(paid.wallet_id, 1)

        with pytest.raises(EventUnreadable, match="at position 2: it has version 2") as raised:
            pay(store, self.paid(then)("w1"))
        assert (raised.value.position, store.head()) == (2, 2)

    @pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
    def test_in_between_each_understands_the_other(
        self, classes: tuple[Any, Any], store: EventStore, first: int, second: int
    ) -> None:
        """Also when a request is repeated at a process of the other deployment."""
        then, now = classes

        @decision(name="pay")
        def pay_then(paid: Any) -> then:
            return then(paid.wallet_id, 5)

        @decision(name="pay")
        def pay_now(paid: Any) -> now:
            return now(paid.wallet_id, 500)

        deployed = (pay_then, pay_now)
        paid = self.paid(now)
        deployed[first](store, paid("w1"), once="command")
        repeated = deployed[second](store, paid("w1"), once="command")
        assert (repeated.already, repeated.event) == (True, now("w1", 500))
        assert project(store, paid("w1")).amounts == (500,)
