"""Typed events: classes of every kind, their tags, and what is done with data that does not fit."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import date, datetime, timezone
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from fencepost import Event, EventStore, InvalidInput, Query, SequencedEvent
from fencepost.decisions import DefinitionError, EventTypes, EventUnreadable, Tag, encode, event, having, tag
from fencepost.decisions.inspection import TypeUnknown


@event
class Plain:
    wallet_id: Tag
    amount: int
    at: datetime | None = None


@event
@dataclasses.dataclass(frozen=True)
class Dataclass:
    wallet_id: Tag
    amount: int
    at: datetime | None = None


@event
class Struct(msgspec.Struct, frozen=True):
    wallet_id: Tag
    amount: int
    at: datetime | None = None


@event
class Model(pydantic.BaseModel):
    wallet_id: Tag
    amount: int
    at: datetime | None = None


KINDS: list[Any] = [Plain, Dataclass, Struct, Model]


def stored(type: str, data: bytes, **metadata: str) -> SequencedEvent:
    return SequencedEvent(7, type, frozenset(), data, 0, None, metadata)


def read(cls: Any, data: bytes, **metadata: str) -> Any:
    return EventTypes(cls).decode(stored(cls.__event__.type, data, **metadata))


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKindOfClass:
    def test_comes_back_from_the_store_as_it_was(self, kind: Any, store: EventStore) -> None:
        moment = datetime(2030, 1, 2, 3, 4, 5, 678901, timezone.utc)
        given = kind(wallet_id="w1", amount=5, at=moment)
        store.append([encode(given)])
        (found,) = store.read()
        assert EventTypes(kind).decode(found) == given

    def test_is_stored_as_json_under_its_name_with_its_tags(self, kind: Any) -> None:
        encoded = encode(kind(wallet_id="w1", amount=5))
        assert encoded.type == kind.__name__
        assert encoded.tags == {"wallet_id:w1"}
        assert msgspec.json.decode(encoded.data) == {"wallet_id": "w1", "amount": 5, "at": None}

    def test_refuses_unknown_fields(self, kind: Any) -> None:
        with pytest.raises(EventUnreadable, match=r"position 7.*unknown field.*colour"):
            read(kind, b'{"wallet_id": "w1", "amount": 5, "colour": "red"}')

    def test_refuses_a_field_of_another_type(self, kind: Any) -> None:
        with pytest.raises(EventUnreadable, match="amount"):
            read(kind, b'{"wallet_id": "w1", "amount": "many"}')

    def test_refuses_bytes_that_are_no_json(self, kind: Any) -> None:
        with pytest.raises(EventUnreadable, match=kind.__name__):
            read(kind, b"\xff\x00")

    def test_can_be_found_by_its_tags(self, kind: Any) -> None:
        assert kind.having(wallet_id="w1") == having(kind, wallet_id="w1")
        assert having(kind, wallet_id="w1").query == Query.of(types={kind.__name__}, tags={"wallet_id:w1"})


class Colour(Enum):
    RED = "red"


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    product: str
    number: int


class LongLine(Line, frozen=True, forbid_unknown_fields=True):
    comment: str


@event
class Ordered:
    order_id: Tag
    title: str = ""
    price: float = 0.0
    number: Annotated[int, msgspec.Meta(ge=1)] = 1
    colour: Colour = Colour.RED
    lines: tuple[Line, ...] = ()
    at: datetime | None = None
    counts: dict[int, int] | None = None


UNFIT: list[tuple[str, dict[str, Any]]] = [
    ("order_id", {"order_id": None}),
    ("order_id", {"order_id": 5}),
    ("title", {"title": None}),
    ("title", {"title": object()}),
    ("title", {"title": "a lone surrogate: \ud800"}),
    ("price", {"price": "5"}),
    ("price", {"price": float("nan")}),
    ("number", {"number": 0}),
    ("number", {"number": True}),
    ("number", {"number": 1.5}),
    ("colour", {"colour": "green"}),
    ("lines[1].number", {"lines": (Line("p", 1), Line("p", None))}),  # type: ignore[arg-type]
    ("lines[0]", {"lines": (LongLine("p", 1, "a field that Line does not know"),)}),
    ("lines", {"lines": Line("p", 1)}),
    ("at", {"at": "yesterday"}),
    ("counts", {"counts": {"three": 3}}),
]


class TestWriting:
    @pytest.mark.parametrize(("field", "values"), UNFIT)
    def test_refuses_what_could_not_be_read(self, field: str, values: dict[str, Any], store: EventStore) -> None:
        with pytest.raises(InvalidInput) as refused:
            store.append([encode(Ordered(**{"order_id": "o1", **values}))])
        assert refused.value.field in {f"Ordered.{field}", f"Ordered.{field.partition('[')[0]}"}
        assert store.head() == 0

    @pytest.mark.parametrize(
        "values",
        [
            {"price": 5},
            {"colour": "red"},
            {"lines": [Line("p", 1)]},
            {"at": datetime(2030, 1, 2)},  # without a zone, and read without one
            {"at": datetime(2030, 1, 2, tzinfo=timezone.utc)},
            {"number": 2**70},
        ],
    )
    def test_takes_what_can_be_read(self, values: dict[str, Any], store: EventStore) -> None:
        store.append([encode(Ordered("o1", **values))])
        (found,) = store.read()
        assert EventTypes(Ordered).decode(found).order_id == "o1"

    @pytest.mark.parametrize("kind", KINDS)
    def test_is_checked_for_every_kind_of_class(self, kind: Any) -> None:
        made = kind.model_construct if kind is Model else kind
        with pytest.raises(InvalidInput, match=rf"^{kind.__name__}\.amount: "):
            encode(made(wallet_id="w1", amount=None, at=None))

    def test_is_checked_for_a_model_that_writes_more_than_it_reads(self) -> None:
        @event
        class Computed(pydantic.BaseModel):
            amount: int

            @pydantic.computed_field  # type: ignore[prop-decorator]
            @property
            def double(self) -> int:
                return 2 * self.amount

        with pytest.raises(InvalidInput, match=r"Computed.*unknown field 'double'"):
            encode(Computed(amount=1))

    def test_is_checked_for_codecs_of_all_kinds(self) -> None:
        class Shouting:
            def __init__(self, cls: Any, refuse_unknown: bool) -> None:
                self._cls = cls

            def write(self, event: Any) -> bytes:
                return str(event.text).upper().encode()

            def read(self, data: bytes) -> Any:
                if not data.isupper():
                    raise RuntimeError("nothing is shouted")
                return self._cls(data.decode())

            def fields(self, data: bytes) -> dict[str, Any]:
                return {"text": data.decode()}

            def build(self, fields: Any) -> Any:
                return self._cls(**fields)

        @event(codec=Shouting)
        class Shouted:
            text: str

        @event(codec="msgpack")
        class Packed:
            text: str

        assert encode(Shouted("hear")).data == b"HEAR"
        with pytest.raises(InvalidInput, match=r"^Shouted: RuntimeError: nothing is shouted"):
            encode(Shouted("5"))
        with pytest.raises(InvalidInput, match=r"^Packed\.text: "):
            encode(Packed(None))  # type: ignore[arg-type]

    def test_takes_a_struct_with_a_tag_of_its_own(self) -> None:
        @event
        class Tagged(msgspec.Struct, tag=True):
            amount: int

        assert read(Tagged, encode(Tagged(5)).data) == Tagged(5)


class TestUnreadable:
    def test_says_which_event_it_is_and_why(self) -> None:
        with pytest.raises(EventUnreadable) as raised:
            read(Plain, b'{"wallet_id": "w1", "amount": null}')
        assert (raised.value.position, raised.value.type) == (7, "Plain")
        assert "Expected `int`, got `null` - at `$.amount`" in raised.value.problem
        again = pickle.loads(pickle.dumps(raised.value))
        assert (again.position, str(again)) == (7, str(raised.value))

    def test_is_what_a_codec_or_class_that_raises_something_else_gives(self) -> None:
        @event
        class Strict:
            amount: int

            def __post_init__(self) -> None:
                if self.amount < 0:
                    raise ArithmeticError("negative")

        with pytest.raises(EventUnreadable, match=r"'Strict' at position 7.*negative"):
            read(Strict, b'{"amount": -1}')


class TestUnknownFields:
    def test_are_ignored_by_a_class_that_declares_so(self) -> None:
        @event(unknown_fields="ignore")
        class Tolerant:
            amount: int

        assert read(Tolerant, b'{"amount": 5, "colour": "red"}') == Tolerant(5)

    def test_are_ignored_by_a_dataclass_that_declares_so(self) -> None:
        @event(unknown_fields="ignore")
        @dataclasses.dataclass
        class Tolerant:
            amount: int

        assert read(Tolerant, b'{"amount": 5, "colour": "red"}') == Tolerant(5)

    def test_can_be_declared_in_two_ways_only(self) -> None:
        with pytest.raises(DefinitionError, match="unknown_fields"):
            event(unknown_fields="drop")  # type: ignore[call-overload]


class TestUnknownTypes:
    def test_are_refused(self) -> None:
        with pytest.raises(TypeUnknown, match="'Other' at position 7"):
            EventTypes(Plain).decode(stored("Other", b"{}"))

    def test_are_kept_as_stored_where_declared(self) -> None:
        other = stored("Other", b"{}")
        assert EventTypes(Plain, unknown="keep").decode(other) is other

    def test_two_classes_for_one_type_are_a_mistake(self) -> None:
        @event(type="Plain")
        class Another:
            pass

        with pytest.raises(DefinitionError, match="'Plain'"):
            EventTypes(Plain, Another)


class TestJson:
    def test_is_what_was_read(self) -> None:
        found = stored("Plain", b' { "amount": 5, "wallet_id": "w1" }\n')
        assert EventTypes(Plain).json(found) == encode(Plain("w1", 5)).data

    def test_has_no_fields_but_those_of_the_class(self) -> None:
        @event(type="Plain", unknown_fields="ignore")
        class Tolerant:
            wallet_id: Tag

        found = stored("Plain", b'{"wallet_id":"w1","type":"Other","position":99}')
        assert EventTypes(Tolerant).json(found) == b'{"wallet_id":"w1"}'

    @pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"wallet_id":"\xff","amount":5}', b"{}}"])
    def test_is_not_made_of_what_does_not_fit(self, data: bytes) -> None:
        with pytest.raises(EventUnreadable, match="'Plain' at position 7"):
            EventTypes(Plain).json(stored("Plain", data))

    def test_is_not_made_of_other_types(self) -> None:
        with pytest.raises(TypeUnknown):
            EventTypes(Plain, unknown="keep").json(stored("Other", b"{}"))

    def test_is_of_the_newest_version_and_of_any_codec(self) -> None:
        @event(type="Plain", version=2, upgrades={1: lambda fields: {**fields, "currency": "EUR"}})
        class Newer:
            wallet_id: Tag
            amount: int
            currency: str

        assert EventTypes(Newer).json(stored("Plain", b'{"wallet_id":"w1","amount":5}')) == (
            b'{"wallet_id":"w1","amount":5,"currency":"EUR"}'
        )

        @event(codec="msgpack")
        class Packed:
            wallet_id: Tag

        packed = encode(Packed("w1"))
        assert EventTypes(Packed).json(stored("Packed", packed.data)) == b'{"wallet_id":"w1"}'


class TestTags:
    def test_have_another_name_if_the_annotation_says_so(self) -> None:
        @event
        class Moved:
            source: Annotated[str, tag("wallet_id")]
            target: Annotated[str, tag("wallet_id")]

        assert encode(Moved("a", "b")).tags == {"wallet_id:a", "wallet_id:b"}
        assert having(Moved, source="a").query == having(Moved, wallet_id="a").query

    def test_are_as_many_as_a_collection_has(self) -> None:
        @event
        class Ordered:
            product_ids: list[Tag]
            coupon: Tag | None = None

        assert encode(Ordered(["p1", "p2"])).tags == {"product_ids:p1", "product_ids:p2"}
        assert encode(Ordered([], coupon="c")).tags == {"coupon:c"}

    def test_are_made_of_plain_values(self) -> None:
        class Colour(Enum):
            RED = "red"

        @event
        class Painted:
            number: Annotated[int, tag()]
            key: Annotated[UUID, tag()]
            day: Annotated[date, tag()]
            colour: Annotated[Colour, tag()]

        made = Painted(4, UUID(int=1), date(2030, 1, 2), Colour.RED)
        assert encode(made).tags == {
            "number:4",
            "key:00000000-0000-0000-0000-000000000001",
            "day:2030-01-02",
            "colour:red",
        }

    def test_are_not_made_of_anything_else(self) -> None:
        @event
        class Weighed:
            weight: Annotated[float, tag()]

        with pytest.raises(InvalidInput, match="weight"):
            encode(Weighed(1.5))

    @pytest.mark.parametrize("given", [{}, {"amount": 5}, {"wallet": "w1"}])
    def test_having_asks_for_tags_of_the_event(self, given: dict[str, object]) -> None:
        with pytest.raises(DefinitionError, match="wallet_id"):
            having(Plain, **given)


class TestDeclaring:
    def test_a_plain_class_becomes_an_immutable_value(self) -> None:
        made = Plain("w1", 5)
        assert made == Plain("w1", 5)
        assert repr(made) == "Plain(wallet_id='w1', amount=5, at=None)"
        with pytest.raises(AttributeError):
            made.amount = 6  # type: ignore[misc]

    def test_methods_and_documentation_are_kept(self) -> None:
        @event
        class Priced:
            """What it costs."""

            cents: int

            def euros(self) -> float:
                return self.cents / 100

        assert Priced.__doc__ == "What it costs."
        assert Priced(250).euros() == 2.5

    def test_the_type_can_be_named(self) -> None:
        @event(type="wallet-opened")
        class Opened:
            pass

        assert encode(Opened()).type == "wallet-opened"

    def test_the_codec_can_be_replaced(self, store: EventStore) -> None:
        @event(codec="msgpack")
        class Small:
            wallet_id: Tag
            amount: int

        store.append([encode(Small("w1", 5))])
        (found,) = store.read()
        assert found.data == msgspec.msgpack.encode({"wallet_id": "w1", "amount": 5})
        assert EventTypes(Small).decode(found) == Small("w1", 5)

    def test_a_class_that_is_no_event_cannot_be_stored(self) -> None:
        with pytest.raises(DefinitionError, match="@event"):
            encode(object())

    def test_a_subclass_is_an_event_only_if_it_says_so(self) -> None:
        class Special(Plain):
            pass

        with pytest.raises(DefinitionError, match="Special"):
            encode(Special("w1", 5))
        assert encode(event(Special)("w1", 5)).type == "Special"

    def test_a_field_cannot_hide_what_every_event_has(self) -> None:
        with pytest.raises(DefinitionError, match="having"):

            @event
            class Wrong:
                having: int

    def test_an_event_made_by_hand_passes_as_it_is(self) -> None:
        made = Event("Old", data=b"\x00", tags={"a"})
        assert encode(made) is made
