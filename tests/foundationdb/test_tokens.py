"""Tokens of killed processes are cleared, and no append relies on the absence of a token that may have been cleared."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from tests.support.simulated_fdb import Fate, Fault, SimulatedCluster

from fencepost import Event, EventStore, StoreUnavailable
from fencepost.engines.foundationdb.appender import LASTING_VERSIONS
from fencepost.engines.foundationdb.layout import Keys

from .clusters import engine_on

HOUR_S = LASTING_VERSIONS / 1_000_000


def tokens(cluster: SimulatedCluster) -> int:
    tr = cluster.open().create_transaction()
    return sum(len(tr.get_range_startswith(prefix).to_list()) for prefix in Keys("test").tokens)


def test_opening_a_store_sweeps_tokens_that_are_an_hour_old() -> None:
    cluster = SimulatedCluster(1)
    for _ in range(20):  # processes that end without closing their store
        EventStore(engine_on(cluster)).append([Event("A")])
    cluster.pass_time(HOUR_S - 1)
    young = EventStore(engine_on(cluster))
    young.append([Event("A")])
    assert tokens(cluster) == 21
    cluster.pass_time(2)
    engine_on(cluster)
    assert tokens(cluster) == 1
    assert len(list(young.read())) == 21


def test_a_sweep_that_fails_does_not_keep_a_store_from_being_opened() -> None:
    cluster = SimulatedCluster(1)
    EventStore(engine_on(cluster)).append([Event("A")])
    cluster.pass_time(HOUR_S + 1)
    cluster.faults.script("commit", Fault(2000))
    assert EventStore(engine_on(cluster)).head() > 0


@pytest.mark.parametrize("fate", [Fate.STORED, Fate.LOST])
def test_an_append_that_was_suspended_for_an_hour_between_its_tries_does_not_trust_that_its_token_is_absent(
    fate: Fate,
) -> None:
    cluster = SimulatedCluster(1, late=0.0)
    store = EventStore(engine_on(cluster))
    given = [Event("Mine", id=uuid4())]
    cluster.faults.script("commit", Fault(1031, fate))
    steps: list[Callable[[], object]] = [lambda: None, lambda: (cluster.pass_time(HOUR_S + 1), engine_on(cluster))]

    def suspend(step: str) -> None:
        if step == "read_version" and steps:
            steps.pop(0)()

    cluster.on_step = suspend
    with pytest.raises(StoreUnavailable, match="outcome is unknown"):
        store.append(given)
    cluster.on_step = None
    assert store.append(given).already is (fate is Fate.STORED)
    assert len(list(store.read())) == 1


def test_a_sweep_while_a_try_is_under_way_conflicts_with_it() -> None:
    """The token is old enough for a sweep when the last try has already found it absent or not."""
    cluster = SimulatedCluster(1, late=0.0)
    keys = Keys("test")
    store = EventStore(engine_on(cluster))
    first: list[bytes] = []

    def clear_the_token(step: str) -> None:
        if step == "commit" and not first:
            first.append(b"")
            tr = cluster.open().create_transaction()
            for prefix in keys.tokens:
                tr.clear_range(prefix, prefix + b"\xff")
            tr.commit().wait()

    cluster.on_step = clear_the_token
    store.append([Event("Mine")])
    assert cluster.conflicts == 1
    assert len(list(store.read())) == 1
