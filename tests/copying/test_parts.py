"""Parts of a log: in order, without gaps, within their limits."""

from __future__ import annotations

import threading

import pytest
from tests.copying.conftest import fill

import fencepost
from fencepost import Event, InvalidInput
from fencepost.engine import recorded
from fencepost.tools import log_parts
from fencepost.tools.part import read_ahead


@pytest.mark.usefixtures("small_parts")
def test_parts_are_the_log_with_each_recorded_append_beside_its_last_event() -> None:
    with fencepost.open("memory:", record_conditions=True) as store:
        fill(store, 43, step=7)
        parts = list(log_parts(store, 3, 41))
        assert [event.position for part in parts for event in part.events] == list(range(4, 42))
        assert {len(part.events) for part in parts[:-1]} == {10}
        assert [append for part in parts for append in part.appends] == list(recorded(store, after=3, up_to=41))
        for part in parts:
            positions = {event.position for event in part.events}
            assert all(append.last in positions for append in part.appends)


def test_a_part_ends_when_it_has_many_bytes_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.tools.part.PART_BYTES", 1_000)
    with fencepost.open("memory:") as store:
        store.append([Event("A", metadata={"long": "x" * 600}) for _ in range(4)])
        store.append([Event("A", data=b"x" * 600) for _ in range(4)])
        assert [len(part.events) for part in log_parts(store, 0, 8)] == [2, 2, 2, 2]


def test_a_log_with_a_gap_is_refused() -> None:
    with fencepost.open("memory:") as store:
        fill(store, 5)
        with pytest.raises(InvalidInput, match=r"position 6 is missing.*FoundationDB"):
            list(log_parts(store, 0, 7))


@pytest.mark.usefixtures("small_parts")
def test_parts_that_are_read_ahead_are_the_same() -> None:
    with fencepost.open("memory:") as store:
        fill(store, 43)
        assert list(read_ahead(log_parts(store, 0, 43))) == list(log_parts(store, 0, 43))


@pytest.mark.usefixtures("small_parts")
def test_an_error_of_the_reading_comes_after_the_parts_before_it() -> None:
    with fencepost.open("memory:") as store:
        fill(store, 25)
        taken: list[int] = []
        with pytest.raises(InvalidInput, match="position 26 is missing"):
            taken.extend(len(part.events) for part in read_ahead(log_parts(store, 0, 30)))
        assert taken == [10, 10, 5]


@pytest.mark.usefixtures("small_parts")
def test_no_thread_is_left_when_the_caller_stops() -> None:
    with fencepost.open("memory:") as store:
        fill(store, 43)
        parts = read_ahead(log_parts(store, 0, 43))
        next(parts)
        assert any(thread.name.startswith("fencepost-copy") for thread in threading.enumerate())
        parts.close()  # type: ignore[attr-defined]
        assert not any(thread.name.startswith("fencepost-copy") for thread in threading.enumerate())
