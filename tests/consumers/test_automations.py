"""Automations on events and on rows of a read model: each event, and each version of a row, has its effect once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import Child

from fencepost import EventStore, Query
from fencepost.consumers import Automation, Failures, Reaction, ReadModel, automation, replay, start, timers
from fencepost.decisions import DefinitionError, encode, project
from fencepost.errors import InvalidInput

from . import row_program
from .orders import Order, OrderPaid, OrderPlaced, cancel, cancelled, pay, place_order
from .places import Place, control, eventually
from .row_program import LEAST, Stock, StockLow, Taken, noting, take


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def noted(store: EventStore) -> list[tuple[str, int]]:
    """What was noted as low, and the position of the row's version."""
    from fencepost.decisions.events import declaration_of

    events = [declaration_of(StockLow).decode(each) for each in store.read(Query.of(types={"StockLow"}))]
    return [(event.item, event.version) for event in events]


def test_an_event_leads_to_a_decision_once(store: EventStore) -> None:
    @automation("refuse")
    def refuse(event: OrderPlaced, store: Reaction) -> None:
        cancel(store, Order(event.order_id))

    for ids in (("a", "b"), ("c",)):
        last = place_order(store, *ids)
        with start(store, refuse):
            eventually(lambda last=last: store.checkpoint("refuse") >= last)
    assert cancelled(store) == ["a", "b", "c"]


class TestRows:
    def test_a_row_that_meets_the_condition_leads_to_a_decision(self, place: Place, store: EventStore) -> None:
        model, automation = noting(place.into)
        take(store, "nut", LEAST - 1)
        low = take(store, "bolt", LEAST)
        with start(store, model, automation):
            eventually(lambda: noted(store) == [("bolt", low)])
            low_as_well = take(store, "nut", 1)
            eventually(lambda: len(noted(store)) == 2)
        assert noted(store) == [("bolt", low), ("nut", low_as_well)]

    def test_each_version_of_a_row_has_its_effect_once_over_restarts(self, place: Place, store: EventStore) -> None:
        model, automation = noting(place.into)
        take(store, "bolt", LEAST)
        expected = []
        for _ in range(3):
            with start(store, model, automation):
                expected.append(take(store, "bolt", 1))
                eventually(lambda: noted(store) and noted(store)[-1][1] == expected[-1])
        versions = [version for _, version in noted(store)]
        assert versions == sorted(set(versions))

    def test_an_event_that_changes_two_rows_has_two_effects(self, place: Place, store: EventStore) -> None:
        model, automation = noting(place.into)
        both = store.append([encode(Taken("bolt", "nut", LEAST))]).last
        for _ in range(2):
            with start(store, model, automation):
                eventually(lambda: store.checkpoint("low") >= both)
        assert sorted(noted(store)) == [("bolt", both), ("nut", both)]

    def test_a_row_is_not_looked_at_before_the_read_model_has_reached_its_event(
        self, place: Place, store: EventStore
    ) -> None:
        model, automation = noting(place.into)
        with start(store, automation) as runner:
            low = take(store, "bolt", LEAST)
            eventually(lambda: (worker := runner.partition_runners[0].worker) and worker._waits_for_rows)
            assert store.checkpoint("low") < low
            with start(store, model):
                eventually(lambda: noted(store) == [("bolt", low)])

    def test_a_row_that_fails_is_set_aside_and_replayed(self, place: Place, store: EventStore) -> None:
        bad = [True]

        def fail(row: Stock) -> bool:
            if bad and row.item == "nut":
                raise ValueError("not today")
            return row.taken >= LEAST

        model, automation = noting(place.into, where=fail, failures=Failures(attempts=2, base_s=0.01, then="set aside"))
        both = store.append([encode(Taken("bolt", "nut", LEAST))]).last
        with start(store, model, automation):
            eventually(lambda: list(control(store, "low").dead_letters) == [both])
            eventually(lambda: noted(store) == [("bolt", both)])
        bad.clear()
        with start(store, model, automation):
            replay(store, "low")
            eventually(lambda: not control(store, "low").dead_letters)
        assert noted(store) == [("bolt", both), ("nut", both)]

    def test_every_version_that_is_low_is_noted_once_though_processes_are_killed(
        self, place: Place, store: EventStore, tmp_path: Path
    ) -> None:
        items = [f"item-{number}" for number in range(8)]
        with ExitStack() as stack:
            for number in range(3):
                arguments = (place.address, place.into, tmp_path / "stop")
                child = stack.enter_context(Child(row_program.__file__, tmp_path / f"reports-{number}", *arguments))
                child.wait_for(1)
                before = len(noted(store))
                for each in items * 5:
                    take(store, each, 3)
                eventually(lambda before=before: len(noted(store)) > before)
                if number < 2:
                    child.kill()
            last = {item: project(store, Stock(item)).position for item in items}
            eventually(lambda: last.items() <= set(noted(store)))
            (tmp_path / "stop").touch()
            child.result()
        assert len(noted(store)) == len(set(noted(store)))


ANY_ROWS = ReadModel(Stock, into="views.db", table="stock")


class TestDeclarations:
    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"after": timedelta(1), "at": lambda event: None}, "after: give either after or at"),
            ({"after": timedelta(-1)}, "after: a delay of at least 0"),
            ({"where": bool}, "where: it is a condition for rows"),
            ({"rows": ANY_ROWS, "after": timedelta(1)}, "rows: rows have no delay"),
            ({"after": timedelta(1), "cancelled_by": OrderPaid}, "by: give cancelled_by and by together"),
            ({"after": timedelta(1), "by": "order_id"}, "by: give cancelled_by and by together"),
            ({"cancelled_by": OrderPaid, "by": "order_id"}, "cancelled_by: only a timer can be cancelled"),
        ],
    )
    def test_a_mistake_is_refused(self, options: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput, match=field):
            automation("a", **options)(lambda event: None)

    @pytest.mark.parametrize(
        ("declare", "message"),
        [
            (lambda: Automation("a", after=timedelta(1), cancelled_by=Taken, by="order_id"), "Taken has no tag"),
            (lambda: automation("a", rows=ANY_ROWS)(lambda row, store, more: None), "takes the row and the Reaction"),
            (lambda: automation("a", after=timedelta(1))(lambda event: None), "annotate 'event'"),
        ],
    )
    def test_so_is_one_in_the_classes(self, declare: Callable[[], Any], message: str) -> None:
        with pytest.raises(DefinitionError, match=message):
            declare()

    def test_a_handled_event_needs_the_tag_too(self) -> None:
        with pytest.raises(DefinitionError, match="Taken has no tag 'order_id'"):

            @automation("a", after=timedelta(1), cancelled_by=OrderPaid, by="order_id")
            def _(event: Taken) -> None: ...

    def test_rows_have_one_handler(self) -> None:
        @automation("a", rows=ANY_ROWS)
        def low(row: Stock, store: Reaction) -> None: ...

        with pytest.raises(DefinitionError, match="rows have one handler"):
            low.on(lambda row: None)

    def test_an_automation_without_timers_has_none_to_list(self, store: EventStore) -> None:
        @automation("a")
        def react(event: OrderPlaced, store: Reaction) -> None: ...

        with pytest.raises(InvalidInput, match="neither after nor at"):
            timers(store, react)

    def test_paid_orders_are_not_listed(self, store: EventStore) -> None:
        @automation("a", after=timedelta(days=1), cancelled_by=OrderPaid, by="order_id")
        def react(event: OrderPlaced, store: Reaction) -> None: ...

        place_order(store, "a", "b")
        pay(store, "a")
        (timer,) = timers(store, react)
        assert timer.tags == ("order_id:b",)
        assert timer.due > datetime.now(timezone.utc) + timedelta(hours=23)
