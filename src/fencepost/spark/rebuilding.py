"""`rebuild`: a read model's past is folded on Spark, and its consumer goes on at exactly that position.

    balances = ReadModel(Balance, by="wallet_id", into="views.db", table="balances")
    fencepost.spark.rebuild(spark, balances, "wallet.db")

Workers fold the log up to a position that is fixed before, each key with the projection of the read model. The driver
writes one row for each key, and the position with the last of them in one transaction. Events that are stored
meanwhile are above that position, and the consumer applies them. tests/spark/test_rebuilding.py compares the table
with a fresh fold while writers append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from .. import EventStore
from .. import open as open_store
from ..consumers import Builder, ReadModel
from ..decisions import Projection
from ..errors import InvalidInput
from .basics import Store, bounds_of
from .folding import POSITION, STATE, Folder, Plan, Saved, log_of

# A rebuild needs the state as a whole, so a field needs no column type on Spark. A plan needs at least one column;
# every class has this one, and it is dropped before anything is folded.
NO_COLUMNS: Final = StructType([StructField("__doc__", StringType())])
EVERY_ROWS: Final = 10_000


def rebuild(
    spark: SparkSession,
    model: ReadModel,
    store: Store,
    *,
    up_to: int | None = None,
    partitions: int | None = None,
    control: EventStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Build the table of a new version of the read model with Spark. Returns the position that it has reached.

    `store` is the address of the log, and `control` the store of the records about consumers, if it is another one.
    The table is built up to the present head, or `up_to`. A process that runs the read model waits meanwhile; the
    version before stays published until the new one has caught up. `on_progress` gets the number of rows written.
    """
    if not isinstance(model, ReadModel):
        raise InvalidInput("model", f"a ReadModel is needed, not {type(model).__name__}")
    plan = replace(Plan.of(model.projection, model.columns.keys, schema=NO_COLUMNS), state=StructType([]))
    address, up_to = bounds_of(store, up_to)
    if address.kind.has_wide_positions:
        raise InvalidInput("store", f"positions of {address} do not fit into the checkpoint of an SQL database")
    with open_store(address) as opened, Builder(model, opened, control=control) as builder:
        log = log_of(spark, address, plan, up_to=opened.head() if up_to is None else up_to)
        if builder.reached >= log.up_to:
            return builder.reached
        folded = Folder(plan, log.position, saving=True).folded(log.rows, partitions)
        # Folded as a whole before the first row is written: a fold that fails changes nothing.
        rows = folded.select(*plan.keys, POSITION, STATE).persist(StorageLevel.DISK_ONLY)
        try:
            rows.count()
            builder.write(_projections(model, rows.toLocalIterator(), on_progress))
        finally:
            rows.unpersist()
        builder.finish(log.up_to)
        return log.up_to


def _projections(
    model: ReadModel, rows: Iterator[Any], on_progress: Callable[[int], None] | None
) -> Iterator[tuple[tuple[str, ...], Projection]]:
    for number, (*key, position, saved) in enumerate(rows, 1):
        projection = model.columns.instance(tuple(key))
        Saved.restored(projection, int(position), bytes(saved))
        if on_progress is not None and number % EVERY_ROWS == 0:
            on_progress(number)
        yield tuple(key), projection
