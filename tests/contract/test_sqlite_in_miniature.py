"""The contract again, with every size of the SQLite engine so small that all of its layers are in play.

With the real sizes a test of a few events lives in the tail alone. Here the tail is written to disk every few events,
generations are merged all the time in many small steps, runs are read a few keys at a time, and readers meet all three
ranges of the log: the indexed one, the tail, and what the tail does not know yet.
"""

from __future__ import annotations

import pytest

from fencepost.engines.sqlite import sizes

from .test_sqlite import TestSqlite as OfRealSize
from .test_sqlite import TestSqliteThatIsRestored as RestoredOfRealSize
from .test_sqlite import TestSqliteThatRecords as RecordsOfRealSize

SIZES = {
    "TAIL_EVENTS": 5,
    "UNINDEXED_EVENTS": 2,
    "OPTIMISTIC_TRIES": 1,
    "SCAN_EVENTS": 20,
    "GENERATION_EVENTS": 12,
    "MERGED": 2,
    "STEP_POSTINGS": 9,
    "RARE": 2,
    "INSERT_ROWS": 3,
    "FEW": 1,
    "MANY": 3,
    "MERGE_REST": 0,
}


class InMiniature:
    @pytest.fixture(autouse=True)
    def small_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, size in SIZES.items():
            monkeypatch.setattr(sizes, name, size)


class TestSqliteInMiniature(InMiniature, OfRealSize): ...


class TestSqliteInMiniatureThatRecords(InMiniature, RecordsOfRealSize): ...


class TestSqliteInMiniatureThatIsRestored(InMiniature, RestoredOfRealSize): ...


del OfRealSize, RecordsOfRealSize, RestoredOfRealSize  # or they would be collected here, too
