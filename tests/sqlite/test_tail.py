"""The tail: what is staged can be taken back without a trace, and is hidden from readers until it is committed."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.thorough import times

from fencepost import Event, Query
from fencepost.engines.sqlite.search import search
from fencepost.engines.sqlite.tail import Tail, TailPart

events = st.lists(
    st.builds(
        Event,
        st.sampled_from(["A", "B"]),
        tags=st.sets(st.sampled_from(["x", "y", "z"])),
        id=st.one_of(st.none(), st.uuids()),
    ),
    max_size=12,
)


def added(tail: Tail, log: list[Event]) -> Tail:
    for event in log:
        tail.add(event.type, event.tags, None if event.id is None else event.id.bytes)
    return tail


def everything_in(tail: Tail) -> object:
    terms = [(term, dict(lists)) for term, lists in tail.terms()]
    return tail.floor, tail.head, len(tail), terms, list(tail.ids())


@settings(max_examples=times(40, thorough=300), deadline=None)
@given(events, events, st.integers(0, 1_000))
def test_what_is_cut_leaves_no_trace(kept: list[Event], staged: list[Event], floor: int) -> None:
    tail = added(added(Tail(floor), kept), staged)
    tail.cut(floor + len(kept))
    assert everything_in(tail) == everything_in(added(Tail(floor), kept))


def test_what_is_staged_is_hidden_from_readers_and_seen_by_conditions() -> None:
    opened = Query.of(types={"Opened"})
    tail = added(Tail(10), [Event("Opened"), Event("Opened")])
    assert list(search(TailPart(tail, 10, 11), opened)) == [11]
    assert list(search(TailPart(tail, 10, 11), opened, backwards=True)) == [-11]
    assert tail.first_match(opened, 11) == 12


def test_an_id_is_found_until_it_is_cut() -> None:
    id = UUID(int=7)
    tail = added(Tail(4), [Event("Opened", id=id)])
    assert tail.position_of(id.bytes) == 5
    tail.cut(4)
    assert tail.position_of(id.bytes) is None
