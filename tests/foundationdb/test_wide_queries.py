"""Queries of many types: their cost is that of the streams plus that of the matches, and their first page gets done."""

from __future__ import annotations

import pytest
from benchmarks.foundationdb import reading_cost
from tests.support.simulated_fdb import Fault, SimulatedCluster, TimedNetwork

from fencepost import Event, EventStore, Query
from fencepost.engines.foundationdb.layout import Keys
from fencepost.engines.foundationdb.pages import FirstPage, Read
from fencepost.engines.foundationdb.transactions import Tries
from fencepost.model import MAX_POSITION

from .clusters import engine_on, simulated

TYPES = [f"Type{number:04}" for number in range(1_000)]


@pytest.mark.parametrize(("types", "partitions", "matches"), [(50, 4, 20), (200, 4, 20), (50, 16, 20), (50, 4, 400)])
def test_the_cost_of_a_read_by_types_is_linear_in_streams_plus_matches(
    types: int, partitions: int, matches: int
) -> None:
    looked, begun = reading_cost(types, partitions, matches)
    assert looked <= 3 * types * partitions + 2 * matches
    assert begun <= types * partitions + 2 * matches


def answer_all(network: TimedNetwork, steps: object) -> object:
    """The result of the steps, whose calls the network answers one after another."""
    assert hasattr(steps, "send")
    try:
        while True:
            future = next(steps)  # type: ignore[call-overload]
            while not future.is_ready():
                assert network.answer_next()
    except StopIteration as ended:
        return ended.value


@pytest.mark.parametrize("backwards", [False, True])
def test_a_first_page_that_takes_longer_than_a_transaction_goes_on_in_the_next_one(backwards: bool) -> None:
    """16,000 streams take more than 6 s here: the client gets no further than through 13,000 in one transaction."""
    cluster = SimulatedCluster(1, late=0.0)
    store = EventStore(engine_on(cluster, partitions=16))
    placed = [store.append([Event(TYPES[number])]).first for number in (0, 1, 500, 999, 999)]
    network = TimedNetwork(slower=1.3)
    cluster.use(network)
    connection = simulated(cluster)
    first = FirstPage(connection, Keys("test", 16), Read(Query.of(types=TYPES), 0, MAX_POSITION, None, backwards))
    failed: list[int] = []
    tries = Tries(connection, lambda code, number: failed.append(code))
    page = answer_all(network, tries.run(first.page))
    assert isinstance(page, list)
    assert [event.position for event in page] == (placed[::-1] if backwards else placed)
    assert failed == [1007], "one more try, which did not begin anew"
    assert first.head == placed[-1]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("query", [Query.all(), Query.of(types={"A", "B"}), Query.of(tags={"x"})])
def test_what_is_appended_between_the_tries_of_a_first_page_is_beyond_its_head(query: Query, backwards: bool) -> None:
    for reads in range(1, 12):
        cluster = SimulatedCluster(1, late=0.0)
        engine = engine_on(cluster, partitions=4)
        store, rival = EventStore(engine), EventStore(engine_on(cluster))
        expected = [store.append([Event("A" if number % 2 else "B", tags={"x"})]).first for number in range(9)]
        cluster.faults.script("read", *[None] * reads, Fault(1007))
        appended: list[int] = []

        def append_before_the_next_try(step: str, appended: list[int] = appended, rival: EventStore = rival) -> None:
            if step == "on_error" and not appended:
                appended.append(0)
                appended[0] = rival.append([Event("A", tags={"x"})]).first

        cluster.on_step = append_before_the_next_try
        reading = store.read(query, backwards=backwards)
        found = [event.position for event in reading]
        assert found == sorted(found, reverse=backwards)
        assert set(expected) <= set(found) <= {*expected, *appended}
        assert reading.head == max(found), "what is there up to the head is found, and nothing beyond it"
