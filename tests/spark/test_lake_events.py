"""Events out of the files of a lake: in stored form, which a restore takes as it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fencepost
from fencepost import InvalidInput, StoreCorrupt
from fencepost.engine import restore
from fencepost.model.encodings import encode_tags
from fencepost.spark.lake_engine.columns import EVENT
from fencepost.spark.lake_engine.reader import events_of

ROW: dict[str, Any] = {"position": 1, "type": "A", "tags": ["b"], "data": b"", "recorded_at": 0, "id": None}
NAMES = ["a", "b", "é", "\uffff", "😀", "\x7f", 'q"', "b\\s", "\t", "\u2028", "a,b", "[", "x" * 30]
PLAIN = ["a", "b", "c", "é", "\uffff", "😀"]
TAGS = st.lists(st.lists(st.sampled_from(PLAIN), max_size=3, unique=True).map(sorted), max_size=9)


@example([["a"], ["b", "a"]], 0, 9)
@example([["a", "a"]], 0, 9)
@example([["x"], ["b", "a"]], 1, 1)  # one list of a larger column
@example([["b"], [], ["a"], []], 0, 9)
@given(TAGS | st.lists(st.lists(st.sampled_from(NAMES), max_size=4), max_size=9), st.integers(0, 3), st.integers(0, 9))
def test_tags_and_metadata_come_out_in_stored_form(lists: list[list[str]], begin: int, length: int) -> None:
    rows = [ROW | {"tags": tags, "metadata": [("b", "1"), ("a", "2")]} for tags in lists]
    events = list(events_of(pa.RecordBatch.from_pylist(rows, schema=EVENT).slice(begin, length)))
    assert [event.raw_tags for event in events] == [encode_tags(set(tags)) for tags in lists[begin : begin + length]]
    assert {event.raw_metadata for event in events} <= {'{"a":"2","b":"1"}'}


@pytest.mark.parametrize("tags", [[""], ["a", ""], [None], [None, "a"]])
def test_tags_that_no_store_has_do_not_become_others(tags: list[str | None]) -> None:
    rows = [ROW | {"metadata": []}, ROW | {"position": 2, "tags": tags, "metadata": []}]
    batch = pa.RecordBatch.from_pylist(rows, schema=EVENT)
    with fencepost.open("memory:") as store, pytest.raises((InvalidInput, StoreCorrupt)):
        restore(store, events_of(batch))
