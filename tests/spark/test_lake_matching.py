"""The scan of a lake, against `fencepost.buckets.matches`. No Spark session is needed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.lakes import written

import fencepost
from fencepost import Event, Query, SequencedEvent
from fencepost.buckets import matches
from fencepost.spark.lake import writer
from fencepost.spark.scanning import Selection
from fencepost.spark.scanning.lake import LakeScan
from fencepost.testing import strategies

ROW_GROUP_EVENTS = 4  # so that the statistics of a row group exclude it now and then


def exported(log: list[Event], folder: Path) -> list[SequencedEvent]:
    """Write the log as a lake, without Spark."""
    address = str(folder / "log.db")
    with fencepost.open(address) as store:
        store.append(log)
        stored = list(store.read())
    written(address, folder / "lake", len(log))
    return stored


@given(
    log=strategies.logs,
    asked=st.lists(strategies.queries, min_size=4, max_size=8),
    types=st.none() | st.frozensets(strategies.types, min_size=1, max_size=2),
)
@settings(max_examples=15)
def test_a_lake_is_scanned_for_what_matches(log: list[Event], asked: list[Query], types: frozenset[str] | None) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        before, writer.ROW_GROUP_EVENTS = writer.ROW_GROUP_EVENTS, ROW_GROUP_EVENTS
        try:
            stored = exported(log, folder)
        finally:
            writer.ROW_GROUP_EVENTS = before
        scan = LakeScan(str(folder / "lake"))
        for query in asked:
            matching = [event.position for event in stored if matches(event, query)]
            assert positions(scan, Selection(0, len(log), query)) == matching
            with scan.open() as store:
                assert [event.position for event in store.read(query)] == matching
            # Types that Spark filters by only exclude row groups; Spark's own filter drops the rest.
            of_types = {event.position for event in stored if types is None or event.type in types}
            found = positions(scan, Selection(0, len(log), query, types))
            assert set(matching) & of_types <= set(found) <= set(matching)


def positions(scan: LakeScan, selection: Selection) -> list[int]:
    return [position for batch in scan.batches(selection, ["position"]) for position in batch.column(0).to_pylist()]
