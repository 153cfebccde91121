"""A table that another program has built, and the consumer that goes on from it: nothing twice, nothing missed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import pytest
from tests.consumers import builder_program
from tests.consumers.builder_program import totals  # as the child imports it: its module is part of the version
from tests.support.processes import Child

from fencepost import EventStore
from fencepost.consumers import CommandRefused, LeaseLost, ReadModel, start, verify
from fencepost.consumers.builder import Builder
from fencepost.consumers.drift import folded
from fencepost.decisions import Projection, encode, event, on, tag

from .places import Place, add, counting, eventually


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def build(model: ReadModel, store: EventStore, up_to: int) -> None:
    with Builder(model, store, lease_s=2) as builder:
        builder.write(folded(model, store, up_to).items())
        builder.finish(up_to)


def test_the_consumer_goes_on_after_the_position_that_was_built(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    up_to = add(store, 50, "a")
    add(store, 7, "a")
    build(model, store, up_to)
    assert (place.checkpoint(model.name), place.execute(f"SELECT total FROM {model.physical(model.version)}")) == (
        up_to,
        [(50,)],
    )
    with counting(store) as handled, start(store, model):
        model.wait_for(store, add(store, 3, "b"))
    assert handled() == 10  # not the 50 that were built
    assert verify(model, store) is None


def test_a_running_consumer_waits_for_the_builder_and_then_goes_on(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    add(store, 20, "a")
    with counting(store) as handled, ExitStack() as stack:
        with Builder(model, store, lease_s=2) as builder:
            runner = stack.enter_context(start(store, model))
            up_to = store.head()
            builder.write(folded(model, store, up_to).items())
            add(store, 5, "a")
            assert runner.partition_runners[0].worker is None
            builder.finish(up_to)
        model.wait_for(store, store.head(), timeout_s=60)
        assert place.execute("SELECT total FROM totals") == [(25,)]
    assert handled() == 5
    assert verify(model, store) is None


def test_a_leader_is_replaced_by_the_builder_and_cannot_write_meanwhile(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    add(store, 5, "a")
    old, new = Builder(model, store, lease_s=2), Builder(model, store, lease_s=2)
    with old:
        old.write(folded(model, store, 5).items())
        with new:
            new.write(folded(model, store, 5).items())
            with pytest.raises(LeaseLost):
                old.finish(5)
            new.finish(5)
    assert place.checkpoint(model.name) == 5


def test_what_an_unfinished_builder_has_written_is_not_kept(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    add(store, 5, "a")
    wrong = model.columns.instance(("wrong",))
    with pytest.raises(ValueError, match="half-way"), Builder(model, store, lease_s=2) as builder:  # noqa: PT012
        builder.write([(("wrong",), wrong)])
        raise ValueError("half-way")
    with start(store, model):
        model.wait_for(store, add(store, 1, "b"))
    assert verify(model, store) is None
    assert len(place.execute("SELECT * FROM totals")) == 2


def test_the_next_builder_begins_with_an_empty_table(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    up_to = add(store, 5, "a")
    with Builder(model, store, lease_s=2) as builder:
        builder.write([(("wrong",), model.columns.instance(("wrong",)))])
    build(model, store, up_to)
    assert verify(model, store) is None


def test_a_builder_that_is_killed_leaves_a_table_that_the_consumer_builds_itself(
    place: Place, store: EventStore, tmp_path: Path
) -> None:
    model = totals(place.into)
    for key in range(40):
        add(store, 3, f"k{key}")
    with Child(builder_program.__file__, tmp_path / "reports", place.address, place.into) as child:
        child.wait_for(1)  # half of the rows are committed
        assert len(place.execute(f"SELECT * FROM {model.physical(model.version)}")) == 20
        child.kill()
    with start(store, model):
        model.wait_for(store, add(store, 1, "k0"), timeout_s=60)
    assert verify(model, store) is None


def test_a_version_that_readers_use_is_refused(place: Place, store: EventStore) -> None:
    model = totals(place.into)
    with start(store, model):
        model.wait_for(store, add(store, 5))
    with pytest.raises(CommandRefused, match="is published, so readers may use it"), Builder(model, store, lease_s=2):
        pass
    with start(store, model):  # the lease was released
        model.wait_for(store, add(store, 5))
    assert verify(model, store) is None


@event
class Ticked:
    n: Annotated[int, tag("number")]


class Numbered(Projection):
    n: Annotated[int, tag("number")]
    double: int = 0

    @on
    def _(self, event: Ticked) -> None:
        self.double = self.n * 2


def test_a_key_that_is_a_number_reaches_the_projection_as_a_number(place: Place, store: EventStore) -> None:
    model = ReadModel(Numbered, into=place.into, table="numbered", lease_s=1)
    with start(store, model):
        model.wait_for(store, store.append([encode(Ticked(5))]).last)
    assert place.execute("SELECT n, double FROM numbered") == [("5", 10)]
    with start(store, model):
        eventually(lambda: model.position() >= 1)
        model.wait_for(store, store.append([encode(Ticked(5))]).last)
    assert verify(model, store) is None
