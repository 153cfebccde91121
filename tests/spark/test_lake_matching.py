"""The scan of a lake, against `fencepost.buckets.matches`. No Spark session is needed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

import fencepost
from fencepost import Event, Query, SequencedEvent
from fencepost.address import Address
from fencepost.buckets import matches
from fencepost.engines.lake.files import LakeManifest, write_lake_manifest
from fencepost.engines.lake.paths import storage_of
from fencepost.spark.lake import writing
from fencepost.spark.scanning import Selection
from fencepost.spark.scanning.lake import LakeScan
from fencepost.spark.scanning.store import StoreScan
from fencepost.testing import strategies

ROW_GROUP_EVENTS = 4  # so that the statistics of a row group exclude it now and then


def exported(log: list[Event], folder: Path) -> list[SequencedEvent]:
    """Write the log as a lake, without Spark."""
    address = str(folder / "log.db")
    with fencepost.open(address) as store:
        store.append(log)
        stored = list(store.read())
    (folder / "events").mkdir()
    file = writing.write_chunk(StoreScan(Address.parse(address)), storage_of(folder), 0, len(log))
    write_lake_manifest(storage_of(folder), LakeManifest(files=(file,)))
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
        before, writing.ROW_GROUP_EVENTS = writing.ROW_GROUP_EVENTS, ROW_GROUP_EVENTS
        try:
            stored = exported(log, folder)
        finally:
            writing.ROW_GROUP_EVENTS = before
        scan = LakeScan(str(folder))
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
