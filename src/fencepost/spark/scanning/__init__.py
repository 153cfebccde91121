"""Scanning a store: which events, cut into which partitions, read by a worker straight into record batches.

    scan        the protocol: what the driver asks of a store and what a worker reads; which scan an address needs
    snapshots   a prefix for several reads to share: a position, and the files of a lake
    selection   which events: a range of positions, a query, types, times, as far as Spark's own filters narrow them
    sqlite, postgres, lake      each kind of store in its own bulk form
    store       any other store, and every query, through the store's own readings
    arrow       from the stored form of columns to the form that Spark takes
    appends     the recorded conditions of appends

Each scan is a small value that is pickled into tasks.
"""

from __future__ import annotations

from .appends import recorded, stored_appends
from .arrow import needed, to_spark, values
from .scan import Scan, partition, scan_of
from .selection import Selection, narrowed
from .snapshots import check_same_log, digest_at, snapshot
from .sqlite import SqliteScan

__all__ = [
    "Scan",
    "Selection",
    "SqliteScan",
    "check_same_log",
    "digest_at",
    "narrowed",
    "needed",
    "partition",
    "recorded",
    "scan_of",
    "snapshot",
    "stored_appends",
    "to_spark",
    "values",
]
