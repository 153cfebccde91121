"""The agenda of an automation: what is due, and the position up to which nothing is left, for any order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from fencepost.consumers.agenda import Agenda, Item


def test_what_is_due_first_comes_first() -> None:
    agenda = Agenda(0)
    for position, due in ((1, 30.0), (2, 10.0), (3, 20.0)):
        agenda.add(Item(due, position))
    assert agenda.next_due() == 10.0
    taken = [agenda.take(25.0), agenda.take(25.0), agenda.take(25.0)]
    assert [None if item is None else item.position for item in taken] == [2, 3, None]


def test_the_watermark_waits_for_the_oldest_item() -> None:
    agenda = Agenda(0)
    items = [Item(0.0, position) for position in (2, 5, 9)]
    for item in items:
        agenda.add(item)
    agenda.cursor = 12
    assert agenda.watermark == 1
    agenda.finish(items[1])
    assert agenda.watermark == 1
    assert agenda.watermark_without(items[0]) == 8
    assert agenda.watermark == 1  # asking changes nothing
    agenda.finish(items[0])
    assert agenda.watermark == 8
    assert agenda.watermark_without(items[2]) == 12


def test_an_item_that_is_cancelled_does_not_hold_the_watermark() -> None:
    agenda = Agenda(0)
    agenda.add(Item(0.0, 1), ["order:a"])
    agenda.add(Item(0.0, 2), ["order:b"])
    agenda.cursor = 3
    assert agenda.cancel(["order:a", "order:c"]) == 1
    assert agenda.watermark == 1
    assert agenda.take(1.0) == Item(0.0, 2)


def test_what_was_done_or_set_aside_before_is_not_added() -> None:
    agenda = Agenda(0, done={(3, ()), (4, ("w1",))}, set_aside={5})
    for item in (Item(0.0, 3), Item(0.0, 4, ("w1",)), Item(0.0, 4, ("w2",)), Item(0.0, 5)):
        agenda.add(item)
    assert agenda.items() == [Item(0.0, 4, ("w2",))]


@given(
    some.lists(some.tuples(some.sampled_from(["add", "finish", "cancel", "take"]), some.integers(0, 9)), max_size=60)
)
def test_the_watermark_is_always_just_below_the_oldest_pending_item(actions: list[tuple[str, int]]) -> None:
    agenda, pending = Agenda(0), dict[int, Item]()
    for number, (action, value) in enumerate(actions, 1):
        agenda.cursor = number
        if action == "add":
            pending[number] = Item(float(value), number)
            agenda.add(pending[number], [f"key:{value % 3}"])
        elif action == "finish" and pending:
            item = pending.pop(sorted(pending)[value % len(pending)])
            without = agenda.watermark_without(item)
            agenda.finish(item)
            assert agenda.watermark == without
        elif action == "cancel":
            agenda.cancel([f"key:{value % 3}"])
            pending = {each: item for each, item in pending.items() if int(item.due) % 3 != value % 3}
        elif (taken := agenda.take(float(value))) is not None:
            assert taken.due == min(item.due for item in pending.values())
            agenda.give_back(taken)
        assert agenda.watermark == min(pending, default=number + 1) - 1 if pending else agenda.watermark == number
        assert agenda.items() == sorted(pending.values())
