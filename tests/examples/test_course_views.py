"""The consumers of the course example: the table follows, and the waiting list is served exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.course_views import consumers, rows, subscribe_or_wait
from examples.courses import Capacity, StudentSubscribed, change_capacity, define_course
from tests.consumers.places import eventually

import fencepost
from fencepost.consumers import start, verify


def test_seats_go_to_the_students_who_wait_longest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    views = str(tmp_path / "views.db")
    model, offering = consumers(views)
    with fencepost.open(tmp_path / "courses.db") as store:
        with start(store, model, offering):
            define_course(store, Capacity("rust"), capacity=1)
            for student in ("ada", "bob", "eve", "joe"):
                subscribe_or_wait(store, "rust", student)
            changed = change_capacity(store, Capacity("rust"), capacity=3)
            eventually(lambda: store.checkpoint("offering") >= changed.position)
            model.wait_for(store, store.head())
        with start(store, offering):  # a second start reacts to nothing again
            eventually(lambda: store.checkpoint("offering") >= changed.position)
        subscribed = [event for event in store.read() if event.type == StudentSubscribed.__name__]
        assert [sorted(event.tags)[1] for event in subscribed] == [
            f"student_id:{each}" for each in ("ada", "bob", "eve")
        ]
        assert rows(views) == [("rust", 3, 3)]
        assert verify(model, store) is None
