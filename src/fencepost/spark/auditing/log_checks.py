"""Checks of the log itself: positions, ids, the ranges of appends, checksums.

Each check returns sentences that describe the problems, at most `NAMED` of them.
"""

from __future__ import annotations

from itertools import chain, islice, pairwise
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ... import EventStore
from ...engine import POSTGRES, SQLITE, Address, SupportsRecordedAppends, engine_of
from ..basics import Snapshot
from ..lake import verify as verify_lake
from ..lake_kind import LAKE
from .boundaries import LONGEST

NAMED: Final = 100  # problems of a kind; a damaged store could have millions
NO_CHECKSUMS: Final = "none of ours"
BLOCK: Final = 10_000  # positions that are counted together, so that no task sees all of them

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
    engine = engine_of(store)
    if not isinstance(engine, SupportsRecordedAppends):
        return []
    above = list(islice(chain.from_iterable(engine.recorded(after=head, up_to=LONGEST)), NAMED))
    head = store.head()  # read last, because other processes may append meanwhile
    return [
        (append.last, f"the append from {append.first} to {append.last} ends above the head, {head}")
        for append in above
        if append.last > head
    ]


def check_checksums(spark: SparkSession, prefix: Snapshot) -> tuple[str, Found, bool]:
    """What was checked, in words; the problems; and whether the lake, if there is one, is sound."""
    if prefix.lake is None:
        return _stored_checksums(prefix.address), [], True
    if prefix.address.kind is LAKE:  # `audit` has verified it
        return "SHA-256 of every file", [], True
    broken = [(0, problem) for problem in verify_lake(spark, prefix.lake.folder)]
    rest = _stored_checksums(prefix.address)
    return f"SHA-256 of every file of the lake; after position {prefix.lake.up_to}: {rest}", broken, not broken


def _stored_checksums(address: Address) -> str:
    if address.kind is SQLITE:  # a page that does not agree ends the audit with StoreCorrupt
        return "SQLite's own, of every page that is read"
    if address.kind is POSTGRES:
        import psycopg  # of the extra with which the store was opened

        with psycopg.connect(address.location) as connection:
            row = connection.execute("SHOW data_checksums").fetchone()
        return f"{NO_CHECKSUMS}; the server's checksums of pages are {row[0] if row else 'unknown'}"
    return f"{NO_CHECKSUMS}; the engine has its own"


def _repeated(events: DataFrame, block: int) -> Found:
    rows = _block(events, block).groupBy("position").count().where("count > 1").orderBy("position").limit(NAMED)
    return [(int(row["position"]), f"there are {row['count']} events at this position") for row in rows.collect()]


def _missing(events: DataFrame, block: int) -> Found:
    there = sorted({int(row["position"]) for row in _block(events, block).select("position").collect()})
    missing = [position for low, high in pairwise(there) for position in range(low + 1, high)]
    return [(position, "the event is missing") for position in missing[:NAMED]]


def _block(events: DataFrame, block: int) -> DataFrame:
    return events.where((F.col("position") >= block * BLOCK) & (F.col("position") < (block + 1) * BLOCK))
