"""Two handles on one file answer like the reference engine, whatever is on disk and whatever in memory.

With small constants a few appends flush, fill generations and merge them: conditions, ids and
reads reach below the floor of the tail, above it, and across.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.small import shrink
from tests.support.thorough import times

import fencepost
from fencepost import AppendCondition, AppendRefused, ConditionFailed, Event, EventStore, Placed, Query, QueryItem
from fencepost.engines.sqlite import verify

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncs cost nothing

types = st.sampled_from(["A", "B", "C"])
tags = st.frozensets(st.sampled_from(["x", "y", "z"]))
ids = st.lists(st.integers(0, 30).map(lambda number: UUID(int=number)), unique=True, min_size=6, max_size=6)
queries = st.lists(st.builds(QueryItem, types=st.frozensets(types, max_size=2), tags=tags), min_size=1, max_size=2).map(
    Query
)
positions = st.integers(0, 60)


@st.composite
def appends(draw: st.DrawFn) -> Callable[[EventStore], Any]:
    named = draw(st.one_of(st.just([None] * 6), ids))
    size = draw(st.integers(1, 6))
    events = [Event(draw(types), data=b"%d" % number, tags=draw(tags), id=named[number]) for number in range(size)]
    conditions = draw(st.lists(st.builds(AppendCondition, queries, after=positions), max_size=2))
    unless = draw(st.one_of(st.none(), st.none(), st.none(), queries))
    return lambda store: attempt(store, events, conditions, unless)


@st.composite
def reads(draw: st.DrawFn) -> Callable[[EventStore], Any]:
    query, after = draw(queries), draw(positions)
    up_to = draw(st.one_of(st.none(), positions))
    limit = draw(st.one_of(st.none(), st.integers(1, 12)))
    backwards = draw(st.booleans())

    def read(store: EventStore) -> Any:
        reading = store.read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        return [(event.position, event.event) for event in reading], reading.head

    return read


def attempt(store: EventStore, events: list[Event], conditions: list[AppendCondition], unless: Query | None) -> Any:
    """What the append came to, in a form that can be compared."""
    try:
        return store.append(events, conditions, unless=unless)
    except ConditionFailed as refusal:
        return refusal.condition, refusal.conflict.position
    except AppendRefused as refusal:
        return str(refusal)


steps = st.lists(st.tuples(st.integers(0, 1), st.one_of(appends(), appends(), reads())), min_size=5, max_size=30)


@settings(max_examples=times(40, thorough=200), deadline=None)
@given(steps)
def test_two_handles_answer_like_the_reference_engine(steps: list[tuple[int, Callable[[EventStore], Any]]]) -> None:
    with ExitStack() as stack:
        shrink(stack.enter_context(pytest.MonkeyPatch.context()).setattr)
        path = Path(stack.enter_context(TemporaryDirectory(dir=MEMORY))) / "store.db"
        reference = fencepost.open("memory:")
        handles = [stack.enter_context(fencepost.open(path)) for _ in range(2)]
        for handle, step in steps:
            assert step(handles[handle]) == step(reference)
        assert verify(path).problems == []


@pytest.mark.usefixtures("small")
def test_an_id_is_found_in_the_tail_on_disk_and_after_merging(path: Path) -> None:
    first = [Event("A", id=UUID(int=1)), Event("A", id=UUID(int=2))]
    with fencepost.open(path) as store, fencepost.open(path) as other:
        for number in range(60):
            assert store.append(first) == Placed(1, 2, already=number > 0)
            assert other.append(first) == Placed(1, 2, already=True)
            store.append([Event("B", tags={"x"})])


@pytest.mark.usefixtures("small")
def test_a_condition_is_judged_alike_below_and_above_the_floor(path: Path) -> None:
    with fencepost.open(path) as store:
        for number in range(30):
            store.append([Event("A", tags={f"n:{number}", "all"})])
        for number in range(30):
            one = Query.of(tags={f"n:{number}", "all"})
            with pytest.raises(ConditionFailed) as refusal:
                store.append([Event("X")], AppendCondition(one, after=number))
            assert refusal.value.conflict.position == number + 1
            store.append([Event("Y")], AppendCondition(one, after=number + 1))
