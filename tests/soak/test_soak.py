"""A short soak run on each engine; `make soak` runs for minutes. And the checks of a soak run fail where they must."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.soak.chaos import Soak, assert_once_in_order
from tests.soak.places import postgres_place, sqlite_place
from tests.support.postgres import PostgresServer

SECONDS = 20.0
TAGS = {position: frozenset({f"key:{position % 2}"}) for position in range(1, 7)}


def test_promises_are_kept_on_sqlite(tmp_path: Path) -> None:
    Soak(*sqlite_place(tmp_path), tmp_path, seed=11).run(SECONDS)


def test_promises_are_kept_on_postgres(tmp_path: Path) -> None:
    with PostgresServer(max_connections=200, fsync="off") as server:
        Soak(*postgres_place(server.url(), "soak"), tmp_path, seed=12).run(SECONDS)


def test_another_order_of_different_keys_is_no_failure() -> None:
    assert_once_in_order("x", [2, 1, 3, 5, 4, 6], TAGS)


@pytest.mark.parametrize(
    ("handled", "failure"),
    [
        ([1, 2, 3, 4, 5], "1 events were not handled, the first at 6"),
        ([1, 2, 3, 3, 4, 5, 6], "1 events were handled twice"),
        ([3, 1, 2, 4, 5, 6], "the event at 1 of key:1 was handled after 3"),
    ],
)
def test_a_broken_promise_is_found(handled: list[int], failure: str) -> None:
    with pytest.raises(AssertionError, match=failure):
        assert_once_in_order("x", handled, TAGS)
