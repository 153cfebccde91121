"""Checks of the log itself: positions, ids, the ranges of appends, checksums.

Each check returns sentences that describe the problems, at most `NAMED` of them.
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
from pyspark.sql.pandas.types import from_arrow_schema

from ...address import LAKE, POSTGRES, Address
from ...core.engine import SupportsRecord
from ...store import EventStore
from ..basics import Snapshot, over_tasks, ranges
from ..lake import verify as verify_lake
from ..scanning import Scan, SqliteScan
from .boundaries import LONGEST

NAMED: Final = 100  # problems of a kind; a damaged store could have millions
NO_CHECKSUMS: Final = "none of ours"
BLOCK: Final = 10_000  # positions that are counted together, so that no task sees all of them

DAMAGED: Final = pa.schema(
    [("position", pa.int64()), ("type", pa.string()), ("tags", pa.list_(pa.string())), ("id", pa.string())]
)

Found = list[tuple[int, str]]


def check_positions(events: DataFrame, *, gaps: bool, begins: int | None) -> tuple[int, set[str], Found]:
    """Positions must be unique, start at `begins` if it is given, and have no gaps unless `gaps`.

    Also returns the number of events and their types.
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
    """Recorded appends must not be empty, and no two of them may share a position.

    Each task sorts the appends of some blocks of positions; the driver sees one row for each block.
    Also returns the number of appends and the number of their events.
    """
    before = Window.partitionBy("block").orderBy("last", "first").rowsBetween(Window.unboundedPreceding, -1)
    blocks = appends.selectExpr("first", "last", f"last div {BLOCK} AS block")
    placed = blocks.join(F.broadcast(_ends_before(blocks)), "block").select(
        "first", "last", F.coalesce(F.max("last").over(before), F.col("ended")).alias("covered")
    )
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


def _ends_before(blocks: DataFrame) -> DataFrame:
    """For each block of positions, the last position of the appends in all blocks before it."""
    ends = blocks.groupBy("block").agg(F.max("last")).orderBy("block").collect()
    found, ended = [], 0
    for block, last in ends:
        found.append((block, ended))
        ended = max(ended, last)
    return blocks.sparkSession.createDataFrame(found, "block long, ended long")


def check_end(store: EventStore, head: int) -> Found:
    """No record may belong to missing events: a record and its events are stored in one transaction."""
    if not isinstance(store.engine, SupportsRecord):
        return []
    above = list(islice(chain.from_iterable(store.engine.recorded(after=head, upto=LONGEST)), NAMED))
    head = store.head()  # read last, because other processes may append meanwhile
    return [
        (append.last, f"the append from {append.first} to {append.last} ends above the head, {head}")
        for append in above
        if append.last > head
    ]


def check_records(store: EventStore, head: int) -> Found:
    """The records must agree with their checksums, on engines that have them."""
    from ...engines.sqlite import SqliteEngine

    if not isinstance(store.engine, SqliteEngine):
        return []
    problem = "its record does not agree with its checksum"
    return [(last, problem) for last in store.engine.unsound_records(upto=head)[:NAMED]]


def check_checksums(spark: SparkSession, prefix: Snapshot, scan: Scan) -> tuple[str, Found, bool]:
    """What was checked, in words; the problems; and whether the lake, if there is one, is sound."""
    if prefix.lake is None:
        return *_stored_checksums(spark, prefix.address, scan, 0, prefix.upto), True
    broken = [(0, problem) for problem in verify_lake(spark, prefix.lake.folder)]
    if prefix.address.kind is LAKE:
        return "SHA-256 of every file", broken, not broken
    rest, wrong = _stored_checksums(spark, prefix.address, scan, prefix.lake.upto, prefix.upto)
    return f"SHA-256 of every file of the lake; after position {prefix.lake.upto}: {rest}", broken + wrong, not broken


def _stored_checksums(spark: SparkSession, address: Address, scan: Scan, after: int, upto: int) -> tuple[str, Found]:
    if isinstance(scan, SqliteScan):
        wrong = over_tasks(spark, ranges(upto, after=after), partial(_wrong_checksums, scan), "position long")
        problem = "its content does not agree with its checksum"
        return "CRC-32 of every event", sorted((row[0], problem) for row in wrong.limit(NAMED).collect())
    if address.kind is POSTGRES:
        from ...engines.postgres import psycopg

        with psycopg.connect(address.location) as connection:
            row = connection.execute("SHOW data_checksums").fetchone()
        return f"{NO_CHECKSUMS}; the server's checksums of pages are {row[0] if row else 'unknown'}", []
    return f"{NO_CHECKSUMS}; the engine has its own", []


def damaged_events(spark: SparkSession, scan: SqliteScan, head: int) -> DataFrame:
    """The events of a file with wrong checksums; bytes that are not text are replaced.

    So the rest of the audit can continue; the damaged events are reported already.
    """
    return over_tasks(spark, ranges(head), partial(_damaged, scan), from_arrow_schema(DAMAGED))


def _wrong_checksums(scan: SqliteScan, range: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    for rows in _checked_rows(scan, range):
        wrong = [row[0] for row in rows if not _is_sound(*row)]
        if wrong:
            yield pa.RecordBatch.from_arrays([pa.array(wrong, pa.int64())], names=["position"])


def _checked_rows(scan: SqliteScan, range: tuple[int, int]) -> Iterator[Iterator[tuple[Any, ...]]]:
    for stored in scan.with_checksums(*range):
        yield zip(*(column.to_pylist() for column in stored.columns), strict=True)


def _is_sound(
    position: int, type: bytes, tags: bytes, data: bytes, recorded_at: int, id: bytes, metadata: bytes, right: int
) -> bool:
    from ...engines.sqlite.checksums import is_sound

    try:
        texts = (type.decode(), tags.decode(), metadata.decode() or None)
    except UnicodeDecodeError:  # checksums cover text
        return False
    return is_sound((position, texts[0], texts[1], data, recorded_at, id or None, texts[2], right))


def _damaged(scan: SqliteScan, range: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    for rows in _checked_rows(scan, range):
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
