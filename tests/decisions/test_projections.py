"""Projections: scope, handlers, state, and what is refused when the class is made."""

from __future__ import annotations

import pickle
from dataclasses import field
from typing import Annotated, Any, ClassVar

import pytest

from fencepost import EventStore, Query, QueryItem, SequencedEvent
from fencepost.decisions import Cached, DefinitionError, Projection, Tag, encode, event, on, project, tag
from fencepost.decisions.projections import query_of

from .wallets import Balance, DepositMade, Status, WalletClosed, WalletOpened, WithdrawalMade


def stored(position: int, typed: object) -> SequencedEvent:
    made = encode(typed)
    return SequencedEvent(position, made.type, made.tags, made.data, 0, None, made.metadata)


@event
class CourseDefined:
    course_id: Tag
    capacity: int


@event
class Subscribed:
    course_id: Tag
    student_id: Tag


@event
class TermEnded:
    term: str


@event
class Transferred:
    source: Annotated[str, tag("wallet_id")]
    target: Annotated[str, tag("wallet_id")]


class TestScope:
    def test_is_the_tags_among_the_fields(self) -> None:
        assert query_of([Balance("w1")]) == Query.of(
            types={"WalletOpened", "DepositMade", "WithdrawalMade"}, tags={"wallet_id:w1"}
        )

    def test_can_be_the_parameters_of_init(self) -> None:
        class Count(Projection):
            def __init__(self, wallet_id): ...  # type: ignore[no-untyped-def]

            number = 0

            @on
            def _(self, event: DepositMade) -> None:
                self.number += 1

        count = Count("w1")
        assert count.wallet_id == "w1"  # type: ignore[attr-defined]
        assert query_of([count]) == Query.of(types={"DepositMade"}, tags={"wallet_id:w1"})

    def test_is_read_after_init_which_may_put_it_into_a_standard_form(self) -> None:
        class Lower(Projection):
            wallet_id: str

            def __init__(self, wallet_id: str) -> None:
                self.wallet_id = wallet_id.lower()

            @on
            def _(self, event: DepositMade) -> None: ...

        assert query_of([Lower("W1")]) == Query.of(types={"DepositMade"}, tags={"wallet_id:w1"})

    def test_may_be_nothing(self) -> None:
        class All(Projection):
            number: int = 0

            @on
            def _(self, event: DepositMade) -> None:
                self.number += 1

        assert query_of([All()]) == Query.of(types={"DepositMade"})

    def test_may_be_narrower_for_a_handler(self) -> None:
        class Membership(Projection):
            course_id: Tag
            student_id: Tag

            @on
            def _(self, event: Subscribed) -> None: ...

            @on(scope=("course_id",))
            def _(self, event: CourseDefined) -> None: ...

            @on(scope=())
            def _(self, event: TermEnded) -> None: ...

        assert set(query_of([Membership("c1", "s1")]).items) == {
            QueryItem(types={"Subscribed"}, tags={"course_id:c1", "student_id:s1"}),
            QueryItem(types={"CourseDefined"}, tags={"course_id:c1"}),
            QueryItem(types={"TermEnded"}),
        }

    def test_is_given_by_name_or_place_and_completely(self) -> None:
        assert Balance(wallet_id="w1") == Balance("w1")
        for args, kwargs in ((), {}), (("a", "b"), {}), ((), {"wallet": "w1"}), (("w1",), {"wallet_id": "w2"}):
            with pytest.raises(TypeError, match="wallet_id"):
                Balance(*args, **kwargs)  # type: ignore[misc, arg-type]

    def test_an_event_names_the_instances_that_it_concerns(self) -> None:
        class Moves(Projection):
            wallet_id: Tag

            @on
            def _(self, event: Transferred) -> None: ...

        concerned = Moves.definition.scopes_of(stored(1, Transferred("a", "b")))
        assert [Moves(**scope) for scope in concerned] == [Moves("a"), Moves("b")]
        assert list(Moves.definition.scopes_of(stored(1, TermEnded("t")))) == []


class TestApplying:
    def test_takes_its_own_events_and_no_others(self) -> None:
        balance = Balance("w1")
        assert balance.apply(stored(1, WalletOpened("w1", "Ada", 100)))
        assert not balance.apply(stored(2, WalletOpened("w2", "Bob", 7)))
        assert not balance.apply(stored(3, WalletClosed("w1")))
        assert balance.apply(stored(4, WithdrawalMade("w1", "x", 30)))
        assert (balance.opened, balance.amount, balance.position) == (True, 70, 4)

    def test_may_look_at_the_stored_event(self) -> None:
        class Last(Projection):
            wallet_id: Tag
            seen: int = 0

            @on
            def _(self, event: WalletOpened | DepositMade, stored: SequencedEvent) -> None:
                self.seen = stored.position

        last = Last("w1")
        last.apply(stored(8, DepositMade("w1", "d", 1)))
        assert last.seen == 8

    def test_may_take_every_event_of_the_scope(self) -> None:
        class Everything(Projection):
            wallet_id: Tag
            types: list[str] = field(default_factory=list)

            @on
            def _(self, event: WalletOpened) -> None:
                self.types.append("opened")

            @on
            def _(self, event: SequencedEvent) -> None:
                self.types.append(event.type)

        everything = Everything("w1")
        for position, typed in enumerate([WalletOpened("w1", "Ada", 1), WalletClosed("w1"), WalletClosed("w2")]):
            everything.apply(stored(position, typed))
        assert everything.types == ["opened", "WalletClosed"]
        assert query_of([everything]) == Query.of(tags={"wallet_id:w1"})

    def test_the_last_handler_of_a_type_counts_in_a_subclass(self) -> None:
        class Doubled(Balance):
            @on
            def _(self, event: DepositMade) -> None:
                self.amount += 2 * event.amount

        doubled = Doubled("w1")
        for typed in (WalletOpened("w1", "Ada", 100), DepositMade("w1", "d", 5), WithdrawalMade("w1", "x", 1)):
            doubled.apply(stored(1, typed))
        assert doubled.amount == 109


class TestState:
    def test_is_not_shared_between_instances(self) -> None:
        class Lists(Projection):
            wallet_id: Tag
            made: list[str] = field(default_factory=list)
            literal = []  # noqa: RUF012

            @on
            def _(self, event: DepositMade) -> None:
                self.made.append(event.deposit_id)
                self.literal.append(event.deposit_id)

        first, second = Lists("w1"), Lists("w1")
        first.apply(stored(1, DepositMade("w1", "d", 1)))
        assert (first.made, first.literal) == (["d"], ["d"])
        assert (second.made, second.literal) == ([], [])

    def test_is_known_with_the_handled_types_and_the_scope(self) -> None:
        class Known(Projection):
            wallet_id: Tag
            constant: ClassVar[int] = 5
            number = 0
            names: set[str] = field(default_factory=set)

            @on
            def _(self, event: DepositMade) -> None: ...

            def helper(self) -> None: ...

        definition = Known.definition
        assert definition.types == {"DepositMade"}
        assert definition.scope == {"wallet_id": "wallet_id"}
        assert definition.state == {"number": int, "names": set[str]}

    def test_survives_pickling(self) -> None:
        balance = Balance("w1")
        balance.apply(stored(3, WalletOpened("w1", "Ada", 100)))
        copy = pickle.loads(pickle.dumps(balance))
        assert copy == balance
        assert copy.apply(stored(4, WithdrawalMade("w1", "x", 1)))
        assert (copy.amount, balance.amount) == (99, 100)

    def test_of_equal_history_is_equal(self) -> None:
        assert Balance("w1") == Balance("w1")
        assert Balance("w1") != Balance("w2")
        assert Balance("w1") != Status("w1")


class TestReading:
    def test_gives_a_fresh_projection_as_of_now(self, store: EventStore) -> None:
        store.append([encode(WalletOpened("w1", "Ada", 100)), encode(WalletOpened("w2", "Bob", 1))])
        template = Balance("w1")
        assert project(store, template).amount == 100
        assert project(store, template).amount == 100
        assert template.amount == 0

    @pytest.mark.parametrize("named", [("course_id", "student_id"), ("student_id",)], ids=["narrower", "beside"])
    @pytest.mark.parametrize("snapshots", [False, True])
    def test_takes_what_apply_takes_beside_a_handler_of_every_type(
        self, store: EventStore, named: tuple[str, ...], snapshots: bool
    ) -> None:
        """The item for every type finds other students' subscriptions, which are handled by name and not theirs."""

        class Enrolment(Projection, snapshot_every=1):
            course_id: Tag
            student_id: Tag
            subscribed: int = 0
            others: int = 0

            @on(scope=named)
            def _(self, event: Subscribed) -> None:
                self.subscribed += 1

            @on(scope=("course_id",))
            def _(self, event: SequencedEvent) -> None:
                self.others += 1

        place = Cached(store) if snapshots else store
        store.append([encode(CourseDefined("c1", 5)), encode(Subscribed("c1", "bob"))])
        for _ in range(2):
            found = project(place, Enrolment("c1", "ada"))
            assert (found.subscribed, found.others, found.position) == (0, 1, 1)
        store.append([encode(Subscribed("c1", "ada")), encode(Subscribed("c1", "eve"))])
        found = project(place, Enrolment("c1", "ada"))
        assert (found.subscribed, found.others, found.position) == (1, 1, 3)


class TestAHandlerThatRaises:
    @pytest.mark.parametrize("shape", ["plain", "stored", "newer", "every"])
    def test_raises_its_own_error_with_a_note_of_the_event(self, shape: str, store: EventStore) -> None:
        @event(type="CourseDefined", version=2, upgrades={1: lambda fields: fields})
        class Newer:
            course_id: Tag
            capacity: int

        class Plain(Projection):
            course_id: Tag

            @on
            def _(self, event: CourseDefined) -> None:
                raise AssertionError("impossible")

        class Stored(Projection):
            course_id: Tag

            @on
            def _(self, event: CourseDefined, stored: SequencedEvent) -> None:
                raise AssertionError("impossible")

        class Upgraded(Projection):
            course_id: Tag

            @on
            def _(self, event: Newer) -> None:
                raise AssertionError("impossible")

        class Every(Projection):
            course_id: Tag

            @on
            def _(self, event: SequencedEvent) -> None:
                raise AssertionError("impossible")

        kinds: dict[str, Any] = {"plain": Plain, "stored": Stored, "newer": Upgraded, "every": Every}
        store.append([encode(CourseDefined("c0", 1)), encode(CourseDefined("c1", 1))])
        with pytest.raises(AssertionError, match="impossible") as raised:
            project(store, kinds[shape]("c1"))
        (note,) = raised.value.__notes__
        assert f"{kinds[shape].__name__}._ (" in note
        assert "test_projections.py:" in note
        assert note.endswith("of event 'CourseDefined' at position 2")


class TestMistakes:
    def test_two_handlers_of_one_type(self) -> None:
        @event(type="Subscribed")
        class Again:
            course_id: Tag

        with pytest.raises(DefinitionError, match=r"2 handlers for the stored type 'Subscribed'.*merge them"):

            class Twice(Projection):
                course_id: Tag

                @on
                def _(self, event: CourseDefined | Subscribed) -> None: ...

                @on
                def _(self, event: Again) -> None: ...

        with pytest.raises(DefinitionError, match="2 handlers for events of every other type"):

            class Everything(Projection):
                @on
                def _(self, event: SequencedEvent) -> None: ...

                @on
                def _(self, event: SequencedEvent) -> None: ...

    def test_two_parents_with_a_handler_each(self) -> None:
        class First(Projection):
            course_id: Tag

            @on
            def _(self, event: Subscribed) -> None: ...

        class Second(Projection):
            course_id: Tag
            number: int = 0

            @on
            def _(self, event: Subscribed) -> None: ...

        with pytest.raises(DefinitionError, match=r"'Subscribed'.*First.*Second.*in this class"):

            class Both(First, Second):
                pass

        class Decided(First, Second):
            @on
            def _(self, event: Subscribed) -> None:
                self.number += 1

        class Diamond(Decided, Second):
            @on
            def _(self, event: CourseDefined) -> None: ...

            @on
            def _(self, event: Subscribed) -> None:
                self.number += 2

        for kind, number in ((Decided, 1), (Diamond, 2)):
            folded = kind("c1")
            folded.apply(stored(1, Subscribed("c1", "s1")))
            assert folded.number == number

    def test_a_forgotten_store(self) -> None:
        with pytest.raises(DefinitionError, match=r"^project: the first argument must be a store, .* not Balance"):
            project(Balance("c1"), Balance("c1"))  # type: ignore[call-overload]
        with pytest.raises(DefinitionError, match=r"^Cached: the first argument must be a store"):
            Cached(Balance("c1"))  # type: ignore[type-var]

    def test_an_event_without_the_tag_of_the_scope(self) -> None:
        with pytest.raises(DefinitionError, match=r"scoped by 'wallet_id', but CourseDefined has no tag"):

            class Wrong(Projection):
                wallet_id: Tag

                @on
                def _(self, event: CourseDefined) -> None: ...

    def test_a_scope_that_no_handler_uses(self) -> None:
        with pytest.raises(DefinitionError, match="'course_id'"):

            class Wrong(Projection):
                course_id: Tag

                @on(scope=())
                def _(self, event: CourseDefined) -> None: ...

    def test_a_part_of_the_scope_that_is_none(self) -> None:
        with pytest.raises(DefinitionError, match="'curse_id'"):

            class Wrong(Projection):
                course_id: Tag

                @on(scope=("curse_id",))
                def _(self, event: CourseDefined) -> None: ...

    def test_a_field_that_is_neither_tag_nor_has_a_value(self) -> None:
        with pytest.raises(DefinitionError, match="'amount'"):

            class Wrong(Projection):
                wallet_id: Tag
                amount: int

    @pytest.mark.parametrize("name", ["apply", "definition", "position"])
    def test_a_field_that_hides_what_every_projection_has(self, name: str) -> None:
        with pytest.raises(DefinitionError, match=name):
            exec(f"class Wrong(Projection):\n    {name} = 0", {"Projection": Projection})

    def test_a_handler_without_annotation(self) -> None:
        with pytest.raises(DefinitionError, match="annotate 'event'"):

            class Wrong(Projection):
                @on
                def _(self, event): ...  # type: ignore[no-untyped-def]

    def test_a_handler_of_what_is_no_event(self) -> None:
        with pytest.raises(DefinitionError, match="int is not an event"):

            class Wrong(Projection):
                @on
                def _(self, event: int) -> None: ...

    def test_a_handler_with_too_many_parameters(self) -> None:
        with pytest.raises(DefinitionError, match="takes self, the event and, optionally"):

            class Wrong(Projection):
                @on
                def _(self, event: DepositMade, stored: object, more: object) -> None: ...

    def test_an_annotation_that_means_nothing(self) -> None:
        with pytest.raises(DefinitionError, match="Unheard"):

            class Wrong(Projection):
                @on
                def _(self, event: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def test_no_handler_at_all(self, store: EventStore) -> None:
        class Empty(Projection):
            wallet_id: Tag

        with pytest.raises(DefinitionError, match="handles no event"):
            project(store, Empty("w1"))
