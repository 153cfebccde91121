"""The log on Spark: a source and a sink for Spark's own API, and what is built on them.

    spark = fencepost.spark.session()
    events = spark.read.format("fencepost").option("store", "wallet.db").load()

    spark_session  a SparkSession with the source registered
    source      Spark's batch and streaming readers
    sink        Spark's writer: staged by the tasks, stored by the driver, once
    scanning    how workers read each kind of store straight into record batches
    frames      a DataFrame of events: from a lake as far as it goes, from the store for the rest
    following   a stream of a log, each batch a DataFrame of a range: from a lake as far as it goes
    folding     one row for each key, computed by the projections that decisions use
    type_checking  whether the classes of a program can read every stored event
    catalogue   a store as a database of Spark's catalogue
    typed       one table for each event class, with its fields as typed columns
    rebuilding  the past of a read model, folded and handed over to its consumer
    view        folds that are kept as Delta tables, and refreshed with the new events
    matching    every pair of many queries and many events, by an equi-join
    lake        the log as a Delta table with checksums
    auditing    proof that every recorded decision was safe; what another boundary would have done
    delta       a Delta table whose files we write: its versions, commits and files
    watching    a progress bar for whatever Spark does
    pipeline    runs a module of streaming queries
    basics      what these share: options, columns, ranges over tasks, errors

Each part is a folder whose docstring is its map, and imports from another part only what that part's `__init__`
declares; `make check` verifies it. Only this package imports pyspark. docs/how-to/spark.md shows its use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .auditing import audit, what_if
    from .basics import place_of
    from .catalogue import catalog
    from .folding import fold
    from .following import Batch, follow
    from .frames import events, use_lake
    from .matching import match
    from .rebuilding import rebuild
    from .scanning import snapshot
    from .spark_session import register, session
    from .type_checking import check_types
    from .typed import tables
    from .view import View
    from .watching import progress

__all__ = [
    "Batch",
    "View",
    "audit",
    "catalog",
    "check_types",
    "events",
    "fold",
    "follow",
    "match",
    "place_of",
    "progress",
    "rebuild",
    "register",
    "session",
    "snapshot",
    "tables",
    "use_lake",
    "what_if",
]

# Imported on first use: the engine of lakes is inside this package and needs no Spark, and Spark's workers import this
# package and need none of these.
_ELSEWHERE: Final = {
    "Batch": "following",
    "View": "view",
    "audit": "auditing",
    "catalog": "catalogue",
    "check_types": "type_checking",
    "events": "frames",
    "fold": "folding",
    "follow": "following",
    "match": "matching",
    "place_of": "basics",
    "progress": "watching",
    "rebuild": "rebuilding",
    "register": "spark_session",
    "session": "spark_session",
    "snapshot": "scanning",
    "tables": "typed",
    "use_lake": "frames",
    "what_if": "auditing",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{error}; Spark needs an extra: pip install 'fencepost[spark]'") from error
    found = globals()[name] = getattr(import_module(f".{_ELSEWHERE[name]}", __name__), name)
    return found
