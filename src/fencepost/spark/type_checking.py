"""`check_types` on Spark: whether the event classes of a program can read every stored event of their types.

Workers decode the events where they read them, with the classes that a service would use, and return only counts and
the first events that cannot be decoded. The log is read in rounds, so that progress can be shown, and the check ends
with the round in which enough unreadable events were found. tests/spark/test_type_checking.py compares the result with
the check in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from .. import SequencedEvent
from ..consumers import MOST_FAILURES, Trial, TypesChecked, Unreadable
from ..engine import checked_position
from .basics import Shipped, Store, arrow_schema, bounds_of, over_tasks, parallelism, position_type, shipped
from .scanning import Scan, Selection, partition, scan_of, to_spark

NEEDED: Final = ("position", "type", "data", "metadata")
ROUNDS: Final = 10


def check_types(
    spark: SparkSession,
    store: Store,
    classes: Iterable[type],
    *,
    after: int = 0,
    up_to: int | None = None,
    sample: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> TypesChecked:
    """Decode every stored event of these classes, as `fencepost.consumers.check_types` does, on Spark.

    With `sample=n`, each task decodes the first and then every n-th event of each type. `on_progress` is called
    with the position that was reached, and the last one. Stops soon after 20 events that cannot be decoded.
    """
    given = list(classes)
    trial = Trial(given, sample)
    checked_position(after, "after")
    address, up_to = bounds_of(store, up_to)
    scan, position = scan_of(address), position_type(address)
    with scan.open() as opened:
        head = opened.head()
        end = head if up_to is None else min(up_to, head)
        parts = partition(scan, opened, Selection(after, end, types=frozenset(trial.declared)))
    decode = partial(_decode, scan, tuple(map(shipped, given)), sample, position)
    at_once = max(parallelism(spark), -(-len(parts) // ROUNDS))
    for first in range(0, len(parts), at_once):
        chosen = parts[first : first + at_once]
        for row in over_tasks(spark, chosen, decode, _schema(position)).collect():
            if row["position"] is None:
                trial.decoded[row["type"]] += row["decoded"]
            else:
                trial.unreadable.append(Unreadable(int(row["position"]), row["type"], row["reason"]))
        if on_progress is not None:
            on_progress(chosen[-1].up_to, end)
        if len(trial.unreadable) >= MOST_FAILURES:
            break
    return TypesChecked(trial.decoded, sorted(trial.unreadable, key=lambda each: each.position)[:MOST_FAILURES])


def _schema(position: DataType) -> StructType:
    """A row for each type, with how many were decoded, and one for each event that could not be."""
    return StructType(
        [
            StructField("type", StringType()),
            StructField("decoded", LongType()),
            StructField("position", position),
            StructField("reason", StringType()),
        ]
    )


def _decode(
    scan: Scan, classes: tuple[Shipped, ...], sample: int, position: DataType, part: Selection
) -> Iterator[pa.RecordBatch]:
    """Decode a part of the log; in a worker."""
    trial = Trial([each.load() for each in classes], sample)
    for event in _events(scan, position, part):
        trial.add(event)
        if len(trial.unreadable) >= MOST_FAILURES:
            break
    rows = [{"type": type, "decoded": count} for type, count in trial.decoded.items()]
    rows += [{"type": each.type, "position": each.position, "reason": each.reason} for each in trial.unreadable]
    yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(_schema(position)))


def _events(scan: Scan, position_type: DataType, part: Selection) -> Iterator[SequencedEvent]:
    wanted = arrow_schema(NEEDED, position_type)
    assert part.types is not None
    for stored in scan.batches(part, wanted.names):
        columns = [to_spark(stored, wanted).column(name).to_pylist() for name in NEEDED]
        for position, type, data, metadata in zip(*columns, strict=True):
            if type in part.types:  # a scan may return other types as well
                yield SequencedEvent(int(position), type, "[]", data, 0, None, dict(metadata))
