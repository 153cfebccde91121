"""Workers answer for each other with the metrics that each has published."""

from __future__ import annotations

from pathlib import Path

from fencepost.server.metrics import APPENDED, COMMIT_APPENDS, HEAD, Metrics, Shared


def test_a_count_that_was_shown_outlives_the_worker(tmp_path: Path) -> None:
    killed = Metrics()
    other = Shared(tmp_path, 1, Metrics())
    shared = Shared(tmp_path, 0, killed)
    killed.add(APPENDED, amount=20)
    killed.record(COMMIT_APPENDS, 1)
    shown = shared.text()
    assert b"\nfencepost_events_appended_total 20\n" in shown
    assert b"\nfencepost_events_appended_total 20\n" in other.text()  # although no tick has published it
    replacement = Shared(tmp_path, 0, Metrics())
    for each in (replacement, other):
        assert b"\nfencepost_events_appended_total 20\n" in each.text()
        assert b"\nfencepost_commit_appends_count 1\n" in each.text()


def test_gauges_of_workers_are_combined_as_declared(tmp_path: Path) -> None:
    first, second = Metrics(), Metrics()
    workers = Shared(tmp_path, 0, first), Shared(tmp_path, 1, second)
    first.set(HEAD, 7)
    second.set(HEAD, 5)
    for each in workers:
        each.publish()
    for each in workers:
        assert b"\nfencepost_head_position 7\n" in each.text()
