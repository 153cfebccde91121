"""Schedules with faults at every step: the history checker compares what the callers saw with the log."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pytest
from tests.support.thorough import times

from fencepost import Placed

from .workload import run

SCHEDULES = times(400, thorough=4_000)
CHUNK = 100


remembered = lru_cache(256)(run)  # so that both of the next tests use the same runs


def test_the_schedules_do_meet_what_they_are_for() -> None:
    """Otherwise the next test would hold because nothing ever happened."""
    ran = [remembered(seed) for seed in range(150)]
    seen = Counter(type(outcome).__name__ for one in ran for outcome in one.outcomes)
    assert sum(one.conflicts for one in ran) > 40, "transactions that conflicted"
    assert seen["Placed"] > 100
    assert seen["ConditionFailed"] > 25
    assert seen["IdsOverlap"] > 2
    assert seen["CheckpointBehind"] > 2
    assert any(isinstance(outcome, Placed) and outcome.already for one in ran for outcome in one.outcomes)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_whatever_happens_the_log_explains_every_answer(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert not remembered(seed).violations(), f"seed {seed}"


def test_the_same_seed_is_the_same_history() -> None:
    def told(seed: int) -> tuple[object, ...]:
        ran = run(seed, rate=0.1)
        return ran.steps, ran.conflicts, list(map(str, ran.outcomes)), [(e.position, e.data) for e in ran.log]

    for seed in range(20):
        assert told(seed) == told(seed)


def test_a_cluster_that_fails_at_every_other_step_breaks_no_promise() -> None:
    for seed in range(30):
        assert not run(seed, rate=0.5).violations(), f"seed {seed}"
