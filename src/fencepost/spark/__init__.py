"""The log on Spark: a source and a sink that Spark's own users recognise, and what is built on them.

    spark = fencepost.spark.session()
    events = spark.read.format("fencepost").option("store", "wallet.db").load()

    session         a SparkSession that is ready, wherever it runs
    java            the Java that came from PyPI, where the machine has none
    options         what a reader and a writer can be told, checked before anything runs
    columns         the columns of an event, and which of them are asked for
    selection       which events are asked for: a range, a query, Spark's own filters
    arrow           from what a store keeps to the record batches that Spark takes
    scanning        how to read each kind of store, and where to cut it into partitions
    sqlite_scan, postgres_scan, store_scan, lake_scan     the kinds
    source, stream  Spark's batch and streaming reader
    sink, staging   Spark's writer: staged by the tasks, stored by the driver, once
    folding         one row for each key, by the projections that decisions use
    fold_plan, fold_log         what is folded into which columns; the events with their keys
    states          a projection's state as columns
    shipping        how a projection class gets to the workers
    view            folds that are kept, and refreshed by what is new
    view_files, view_table      where they are kept
    matching        every pair of many queries and many events, by an equi-join
    lake            the log as Parquet files that prove themselves; Delta and Iceberg over them
    recorded        what appends were conditional on, from a store to Spark
    auditing        that every recorded decision was safe; what another boundary would have done
    boundaries, questions, log_checks      what it asks, how it is answered, and what holds of the log besides

Nothing outside of this package imports pyspark. docs/how-to/spark.md shows it at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}; Spark comes with an extra of its own: pip install 'fencepost[spark]'") from error

from .secrets import place_of
from .session import register, session
from .source import events

if TYPE_CHECKING:
    from .auditing import audit, what_if
    from .folding import fold
    from .matching import match
    from .view import View

__all__ = ["View", "audit", "events", "fold", "match", "place_of", "register", "session", "what_if"]

# Imported when they are asked for: each process that plans or runs a read imports this package, and needs none of them.
_ELSEWHERE: Final = {"View": "view", "audit": "auditing", "fold": "folding", "match": "matching", "what_if": "auditing"}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_ELSEWHERE[name]}", __name__), name)
    return found
