"""`stats`: types, tags and growth."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from fencepost import SequencedEvent
from fencepost.cli.stats import PERIODS, Stats

from .conftest import Cli

NOON = datetime(2026, 3, 4, 12, tzinfo=timezone.utc)


def grown(*moments: datetime) -> Stats:
    stats = Stats()
    for position, moment in enumerate(moments, start=1):
        stats.add(SequencedEvent(position, "T", frozenset(), b"", moment))
    return stats


def test_stats_counts_types_tags_and_bytes(cli: Cli, wallets: str) -> None:
    (said,) = cli("stats", wallets).lines
    assert (said["head"], said["events"], said["data_bytes"]) == (4, 4, 61)
    assert said["file_bytes"] > 0
    assert said["types"][0] == {"type": "WalletOpened", "events": 2, "data_bytes": 33, "last": 3}
    assert sorted(kind["type"] for kind in said["types"][1:]) == ["MoneyDeposited", "MoneyWithdrawn"]
    assert said["tags"]["different"] == 3
    assert said["tags"]["most_used"][0] == {"tag": "wallet:w1", "events": 3}
    assert sum(period["events"] for period in said["growth"]["periods"]) == 4


def test_stats_shows_only_the_most_used_tags(cli: Cli, wallets: str) -> None:
    (said,) = cli("stats", wallets, "--top", "1").lines
    assert [used["tag"] for used in said["tags"]["most_used"]] == ["wallet:w1"]
    assert said["tags"]["different"] == 3


def test_stats_of_an_empty_store_are_empty(cli: Cli, path: str) -> None:
    cli("init", path)
    (said,) = cli("stats", path).lines
    assert (said["events"], said["types"], said["growth"]["periods"]) == (0, [], [])


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (timedelta(seconds=5), "second"),
        (timedelta(minutes=5), "minute"),
        (timedelta(hours=5), "hour"),
        (timedelta(days=5), "day"),
        (timedelta(weeks=5), "week"),
        (timedelta(days=300), "30 days"),
        (timedelta(days=3_000), "365 days"),
    ],
)
def test_growth_is_told_in_the_smallest_steps_that_are_few(span: timedelta, step: str) -> None:
    said, periods = grown(NOON, NOON + span / 2, NOON + span).growth()
    assert said == step
    assert len(periods) <= PERIODS
    assert sum(events for _, events in periods) == 3


def test_growth_tells_of_the_periods_in_which_nothing_came() -> None:
    _, periods = grown(NOON, NOON, NOON + timedelta(seconds=3)).growth()
    assert [(start - NOON, events) for start, events in periods] == [
        (timedelta(seconds=0), 2),
        (timedelta(seconds=1), 0),
        (timedelta(seconds=2), 0),
        (timedelta(seconds=3), 1),
    ]


def test_growth_over_centuries_still_counts_every_event() -> None:
    _, periods = grown(NOON, NOON + timedelta(days=36_500)).growth()
    assert sum(events for _, events in periods) == 2
