"""What must hold of the log itself, whoever appended: positions, ids, the ranges of appends, checksums.

Each check gives back the sentences that name what is wrong, a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..engine import Recording
from ..store import EventStore
from .boundaries import LONGEST
from .lake import verify as verify_lake
from .lake_scan import LakeScan
from .postgres_scan import PostgresScan
from .reporting import reporting
from .scanning import Scan, default_parts, even_borders
from .selection import Selection
from .sqlite_scan import SqliteScan

NAMED: Final = 100  # problems of a kind; a broken store could have millions
BLOCK: Final = 10_000  # positions that are counted together, so that no task has to see them all

DAMAGED: Final = pa.schema(
    [("position", pa.int64()), ("type", pa.string()), ("tags", pa.list_(pa.string())), ("id", pa.string())]
)

Found = list[tuple[int, str]]


def check_positions(events: DataFrame, *, gaps: bool, begins: int | None) -> tuple[int, set[str], Found]:
    """Positions are there once, without gaps where the engine has none, and from where it begins, if that is known.

    Also how many events there are, and of which types.
    """
    blocks = events.groupBy(F.floor(F.col("position") / BLOCK).alias("block")).agg(
        F.count("*").alias("events"),
        F.countDistinct("position").alias("places"),
        F.min("position").alias("low"),
        F.max("position").alias("high"),
        F.collect_set("type").alias("types"),
    )
    found: Found = []
    total, types = 0, set[str]()
    previous = None if begins is None else begins - 1
    for block in sorted(blocks.collect(), key=lambda block: block["block"]):
        if block["events"] > block["places"]:
            found += _repeated(events, block["block"])
        if not gaps and previous is not None and block["low"] != previous + 1:
            found.append((previous + 1, f"positions {previous + 1} to {block['low'] - 1} are missing"))
        if not gaps and block["high"] - block["low"] + 1 > block["places"]:
            found += _missing(events, block["block"])
        total, previous = total + block["events"], block["high"]
        types.update(block["types"])
    return total, types, sorted(found)[:NAMED]


def check_ids(events: DataFrame) -> Found:
    twice = (
        events.where("id IS NOT NULL")
        .groupBy("id")
        .agg(F.count("*").alias("times"), F.min("position").alias("low"), F.max("position").alias("high"))
        .where("times > 1")
        .limit(NAMED)
        .collect()
    )
    return sorted((int(row["high"]), f"the id {row['id']} is at position {row['low']} and again here") for row in twice)


def check_appends(appends: DataFrame) -> tuple[int, int, Found]:
    """The recorded appends grow, and no two of them share a position.

    Also how many there are, and how many events they have.
    """
    before = Window.orderBy("last", "first").rowsBetween(Window.unboundedPreceding, -1)
    placed = appends.select("first", "last").withColumn("covered", F.coalesce(F.max("last").over(before), F.lit(0)))
    is_wrong = (F.col("first") > F.col("last")) | (F.col("first") <= F.col("covered"))
    count, events, wrong = placed.agg(
        F.count("*"),
        F.coalesce(F.sum(F.col("last") - F.col("first") + 1), F.lit(0)),
        F.coalesce(F.sum(is_wrong.cast("long")), F.lit(0)),
    ).collect()[0]
    found: Found = []
    for first, last, covered in placed.where(is_wrong).limit(NAMED).collect() if wrong else ():
        if first > last:
            found.append((last, f"the append from {first} to {last} does not grow"))
        else:
            found.append((last, f"the append from {first} to {last} begins in another that ends at {covered}"))
    return count, events, sorted(found)


def check_end(store: EventStore, head: int) -> Found:
    """Nothing is recorded of events that are not there: a record and its events come in one transaction."""
    if not isinstance(store._engine, Recording):
        return []
    above = list(islice(chain.from_iterable(store._engine.recorded(after=head, upto=LONGEST)), NAMED))
    head = store.head()  # asked for last: others may go on appending
    return [
        (append.last, f"the append from {append.first} to {append.last} ends above the head, {head}")
        for append in above
        if append.last > head
    ]


def check_checksums(spark: SparkSession, scan: Scan, head: int) -> tuple[str, Found]:
    """What was checked, in words, and what is wrong."""
    if isinstance(scan, LakeScan):
        return "SHA-256 of every file", [(0, problem) for problem in verify_lake(spark, scan.folder)]
    if isinstance(scan, SqliteScan):
        wrong = _ranges(spark, head).mapInArrow(partial(_wrong_checksums, scan=scan), "position long")
        problem = "does not have the content that its checksum was made of"
        return "CRC-32 of every event", sorted((row[0], problem) for row in wrong.limit(NAMED).collect())
    if isinstance(scan, PostgresScan):
        from ..engines.postgres import psycopg
        from .postgres_scan import split_address

        with psycopg.connect(split_address(scan.address)[0]) as connection:
            row = connection.execute("SHOW data_checksums").fetchone()
        return f"none of ours; the server's checksums of pages are {row[0] if row else 'unknown'}", []
    return "none of ours; the engine has its own", []


def damaged_events(spark: SparkSession, scan: SqliteScan, head: int) -> DataFrame:
    """The events of a file that has wrong checksums: what is no text any more is shown as nearly as it can be.

    So the rest of the audit goes on; that these events are broken is said already.
    """
    columns = "position long, type string, tags array<string>, id string"
    return _ranges(spark, head).mapInArrow(partial(_damaged, scan=scan), columns)


def _ranges(spark: SparkSession, head: int) -> DataFrame:
    borders = [0, *even_borders(Selection(0, head), default_parts(head)), head]
    ranges = [(msgspec.json.encode(pair).decode(),) for pair in pairwise(borders)]
    return spark.createDataFrame(ranges, "line string").repartition(len(ranges))


def _wrong_checksums(batches: Iterator[pa.RecordBatch], scan: SqliteScan) -> Iterator[pa.RecordBatch]:
    with reporting():
        for rows in _checked_rows(batches, scan):
            wrong = [row[0] for row in rows if not _is_sound(*row)]
            if wrong:
                yield pa.RecordBatch.from_arrays([pa.array(wrong, pa.int64())], names=["position"])


def _checked_rows(batches: Iterator[pa.RecordBatch], scan: SqliteScan) -> Iterator[Iterator[tuple[Any, ...]]]:
    for batch in batches:
        for line in batch.column("line").to_pylist():
            for stored in scan.with_checksums(*msgspec.json.decode(line, type=tuple[int, int])):
                yield zip(*(column.to_pylist() for column in stored.columns), strict=True)


def _is_sound(
    position: int, type: bytes, tags: bytes, data: bytes, recorded_at: int, id: bytes, metadata: bytes, right: int
) -> bool:
    from ..engines.sqlite.drafts import checksum

    try:
        return checksum(position, type.decode(), tags.decode(), data, recorded_at, id, metadata.decode()) == right
    except UnicodeDecodeError:  # checksums are made of text
        return False


def _damaged(batches: Iterator[pa.RecordBatch], scan: SqliteScan) -> Iterator[pa.RecordBatch]:
    with reporting():
        for rows in _checked_rows(batches, scan):
            shown = [
                {
                    "position": position,
                    "type": type.decode(errors="replace"),
                    "tags": _tags(tags),
                    "id": str(UUID(bytes=id)) if len(id) == 16 else None,
                }
                for position, type, tags, _, _, id, *_ in rows
            ]
            yield pa.RecordBatch.from_pylist(shown, schema=DAMAGED)


def _tags(text: bytes) -> list[str]:
    try:
        return msgspec.json.decode(text.decode(errors="replace"), type=list[str])
    except msgspec.DecodeError:
        return []


def _repeated(events: DataFrame, block: int) -> Found:
    rows = _block(events, block).groupBy("position").count().where("count > 1").orderBy("position").limit(NAMED)
    return [(int(row["position"]), f"there are {row['count']} events at this position") for row in rows.collect()]


def _missing(events: DataFrame, block: int) -> Found:
    there = sorted({int(row["position"]) for row in _block(events, block).select("position").collect()})
    missing = [position for low, high in pairwise(there) for position in range(low + 1, high)]
    return [(position, "the event is missing") for position in missing[:NAMED]]


def _block(events: DataFrame, block: int) -> DataFrame:
    return events.where((F.col("position") >= block * BLOCK) & (F.col("position") < (block + 1) * BLOCK))
