"""The state in a snapshot comes back with the same types and the same shared objects, or is refused."""

from __future__ import annotations

import pickle
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timezone
from enum import Enum, Flag, IntEnum, StrEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from re import Pattern
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import fencepost
from fencepost import EventStore
from fencepost.decisions import Cached, DefinitionError, Projection, Tag, encode, on, project
from fencepost.decisions.state import StateCodec

from .wallets import DepositMade


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Box:
    content: Any


@dataclass(frozen=True, slots=True)
class Sealed:
    content: Any


class Struct(msgspec.Struct, frozen=True):
    content: Any


class Keyword(msgspec.Struct, kw_only=True):
    content: Any


class Model(BaseModel):
    content: Any


CODEC = StateCodec("State", {"all": Colour | Level | Rights | Pair | Box | Sealed | Struct | Keyword | Model})

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.decimals(allow_nan=False), st.fractions(), st.dates(), st.times(), st.timedeltas(), st.uuids(),
    st.datetimes(timezones=st.just(timezone.utc)),
    st.sampled_from([Colour.RED, Level.LOW, Rights.READ, Rights.READ | Rights.WRITE, ZoneInfo("Europe/Berlin")]),
)  # fmt: skip
KEYS = st.one_of(st.text(), st.integers(), st.sampled_from([Colour.RED, Level.LOW]))


def containers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds: list[Callable[[Any], Any]] = [Box, Sealed, Struct, lambda x: Keyword(content=x), lambda x: Model(content=x)]
    return st.one_of(
        st.lists(of), st.lists(of).map(tuple), st.lists(of).map(deque), st.tuples(of, of).map(lambda two: Pair(*two)),
        st.dictionaries(KEYS, of), st.dictionaries(KEYS, of).map(OrderedDict),
        st.dictionaries(KEYS, of).map(lambda items: defaultdict(list, items)),
        st.lists(KEYS).map(Counter), st.sets(KEYS), st.frozensets(KEYS),
        of.map(lambda one: [one, one]), of.map(lambda one: {"first": one, "second": [one]}),
        *[of.map(kind) for kind in kinds],
    )  # fmt: skip


VALUES = st.recursive(SCALARS, containers, max_leaves=12)


def shape(value: Any, seen: dict[int, int]) -> Any:
    """The value with the types of everything in it, and a number for each mutable object, in the order of visits."""
    parts: list[Any]
    if isinstance(value, Enum):
        return type(value), value.value
    if isinstance(value, (list, tuple, deque)):
        parts = list(value)
    elif isinstance(value, dict):
        parts = [each for pair in value.items() for each in pair] + [getattr(value, "default_factory", None)]
    elif isinstance(value, (set, frozenset)):
        return type(value), sorted(repr((type(each), each)) for each in value)
    elif hasattr(value, "content"):
        parts = [value.content]
    else:
        return type(value), value
    if not isinstance(value, tuple) and id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    return type(value), seen[id(value)], [shape(each, seen) for each in parts]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES))
def test_any_state_comes_back_with_the_same_types_and_the_same_shared_objects(state: dict[str, Any]) -> None:
    assert shape(CODEC.decode(CODEC.encode(state)), {}) == shape(state, {})


class Seen(Projection, snapshot_every=1):
    wallet_id: Tag
    counts: dict[str, int] = field(default_factory=Counter)
    groups: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    total: float = 0.0
    colour: str | Colour = ""
    level: int | Level = 0
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)

    @on
    def _(self, event: DepositMade) -> None:
        self.counts[event.deposit_id] += 1
        self.groups["all"].append(event.amount)
        self.total = event.amount
        self.colour, self.level = Colour.RED, Level.LOW
        self.second = self.first
        self.first.append(event.amount)


class TestAProjection:
    @pytest.mark.parametrize("limit", [10, 0], ids=["in memory", "in a store"])
    def test_goes_on_from_a_snapshot_with_the_same_types_and_shared_objects(
        self, store: EventStore, limit: int
    ) -> None:
        keep = fencepost.open("memory:")
        cached = Cached(store, keep_in=keep, limit=limit)
        for number in range(4):
            store.append([encode(DepositMade("w1", "d", number))])
            seen = project(cached, Seen("w1"))
            assert seen.first is seen.second
            assert seen.first == list(range(number + 1))
            assert type(seen.total) is int
            assert type(seen.counts) is Counter
            assert type(seen.groups) is defaultdict
            assert (seen.colour, seen.level) == (Colour.RED, Level.LOW)
            assert (type(seen.colour), type(seen.level)) == (Colour, Level)
        assert (cached.ignored, keep.head()) == (0, 4)


class TestAtTheDeclaration:
    @pytest.mark.parametrize(
        "annotation",
        [Callable[[], int], Iterator[int], threading.Thread, threading.Event | None, list[threading.Thread], Pattern],
        ids=str,
    )
    def test_a_field_that_could_never_be_restored_is_refused(self, annotation: Any) -> None:
        with pytest.raises(DefinitionError, match=r"snapshot cannot restore the field 'odd'"):

            class Odd(Projection, snapshot_every=1):
                wallet_id: Tag
                odd: annotation = None

                @on
                def _(self, event: DepositMade) -> None: ...

    @pytest.mark.parametrize(
        "made",
        [object, threading.Lock, lambda: defaultdict(lambda: 0), lambda: iter([1])],
        ids=["a marker", "a lock", "a factory without a name", "an iterator"],
    )
    def test_an_initial_value_that_could_not_be_restored_is_refused(self, made: Callable[[], Any]) -> None:
        with pytest.raises(DefinitionError, match=r"Odd: a snapshot cannot restore the state: .* snapshot_every"):

            class Odd(Projection, snapshot_every=1):
                wallet_id: Tag
                odd: Any = field(default_factory=made)

                @on
                def _(self, event: DepositMade) -> None: ...

    def test_nothing_is_refused_without_snapshots(self) -> None:
        class Odd(Projection):
            wallet_id: Tag
            odd: Any = field(default_factory=threading.Lock)

            @on
            def _(self, event: DepositMade) -> None: ...

        assert Odd("w1").odd is not None

    def test_values_of_the_standard_library_are_not_refused(self, store: EventStore) -> None:
        class Seen(Projection, snapshot_every=1):
            wallet_id: Tag
            address: IPv4Address = IPv4Address("127.0.0.1")
            path: PurePosixPath | None = None

            @on
            def _(self, event: DepositMade) -> None:
                self.path = PurePosixPath(event.deposit_id)

        cached = Cached(store)
        store.append([encode(DepositMade("w1", "a/b", 1))])
        for _ in range(2):
            seen = project(cached, Seen("w1"))
            assert (seen.address, seen.path) == (IPv4Address("127.0.0.1"), PurePosixPath("a/b"))


class TestWhenASnapshotIsTaken:
    def test_a_value_whose_class_no_annotation_names_comes_back_in_this_process(self, store: EventStore) -> None:
        def made() -> Any:
            class Loose(Projection, snapshot_every=1):
                wallet_id: Tag
                colour: str = ""

                @on
                def _(self, event: DepositMade) -> None:
                    self.colour = Colour.RED

            return Loose

        here, elsewhere = made(), made()
        store.append([encode(DepositMade("w1", "d", 1))])
        with fencepost.open("memory:") as keep:
            for loose, ignored in ((here, 0), (here, 0), (elsewhere, 1)):
                cached = Cached(store, keep_in=keep)
                assert project(cached, loose("w1")).colour is Colour.RED
                assert cached.ignored == ignored

    def test_an_object_that_is_told_by_its_identity_is_refused(self, store: EventStore) -> None:
        class Marker: ...

        class Loose(Projection, snapshot_every=1):
            wallet_id: Tag
            marker: Any = None

            @on
            def _(self, event: DepositMade) -> None:
                self.marker = Marker()

        store.append([encode(DepositMade("w1", "d", 1))])
        with pytest.raises(DefinitionError, match=r"it contains .*\.Marker, which no annotation names"):
            project(Cached(store), Loose("w1"))

    def test_a_field_that_is_not_declared_is_refused(self, store: EventStore) -> None:
        class Hidden(Projection, snapshot_every=1):
            wallet_id: Tag

            @on
            def _(self, event: DepositMade) -> None:
                self.sudden = event.amount

        store.append([encode(DepositMade("w1", "d", 1))])
        with pytest.raises(DefinitionError, match="sudden"):
            project(Cached(store), Hidden("w1"))


def test_reading_a_state_calls_nothing_that_the_class_does_not_declare() -> None:
    class Forged:
        def __reduce__(self) -> Any:
            return pickle.loads, (b"",)

    with pytest.raises(DefinitionError, match=r"_pickle\.loads, which is not a class of the state"):
        CODEC.decode(pickle.dumps({"a": Forged()}))


def test_classes_are_found_under_another_name_of_their_module() -> None:
    """A program stores `__main__.Box`, and a service that imports the program reads `program.Box`."""

    def made() -> Any:
        @dataclass
        class Box:
            content: int

        Box.__qualname__ = "Box"
        return Box

    program, imported = made(), made()
    program.__module__, imported.__module__ = "__main__", "program"
    data = StateCodec("State", {"box": program}).encode({"box": program(5)})
    assert StateCodec("State", {"box": imported}).decode(data) == {"box": imported(5)}
