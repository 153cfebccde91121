"""The audit: proof from the recorded conditions that every decision in the log was safe.

A store that is opened with `record_conditions=True` keeps the conditions of each append. An append was safe if no event
between the position up to which it had read and its own first position matches its condition. The audit tests every
recorded condition against the whole log, with code that shares nothing with the engine that judged it: matching is a
join, and only the order of the log is trusted. It also checks ids, positions, the ranges of appends and checksums.

The proof also says something about the boundaries: which are the busiest, how close conflicts came, and which ask for
more types than their events ever had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...engine import Address
from ..basics import Snapshot, Store, bounds_of, position_column
from ..frames import Folder
from ..frames import events as events_of
from ..lake import verify
from ..lake_kind import LAKE
from ..scanning import SqliteScan, recorded, scan_of, snapshot
from .boundaries import UNREADABLE, answered, matched_items, questions_of
from .log_checks import (
    NO_CHECKSUMS,
    Found,
    check_appends,
    check_checksums,
    check_end,
    check_ids,
    check_positions,
)

NAMED: Final = 100  # the most violations of conditions that are listed; `refuted` counts all
TOP: Final = 10

CONDITION_KEY: Final = ("first", "kind", "number")  # identifies a condition
KINDS: Final = ("condition", "unless", "position", "id", "append", "checksum", "record")


@dataclass(frozen=True)
class Violation:
    """Something that must never happen: its kind, its position, and a description."""

    kind: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind} at position {self.position}: {self.what}"


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    `conditions`, `boundaries` and `wider` are DataFrames, whose columns docs/reference/spark.md lists.
    """

    head: int
    events: int
    appends: int  # recorded
    covered: int  # events of recorded appends
    proven: int  # conditions, `unless` included, that were proven or refuted
    checksums: str
    violations: tuple[Violation, ...]
    refuted: int  # conditions that did not hold; `violations` lists the first of them
    conditions: DataFrame = field(repr=False)
    boundaries: DataFrame = field(repr=False)
    wider: DataFrame = field(repr=False)
    _kept: tuple[DataFrame, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> Literal["sound", "unsound", "unproven"]:
        """`unproven` if there is neither a violation nor a recorded condition: then nothing was proven."""
        if self.violations:
            return "unsound"
        return "sound" if self.proven else "unproven"

    @property
    def sound(self) -> bool:
        """Whether conditions were recorded, all of them held, and no other check failed."""
        return self.verdict == "sound"

    @property
    def unchecked(self) -> list[str]:
        """What the audit could not check, in words."""
        missing = []
        if self.events > self.covered:
            missing.append(f"the conditions of {self.events - self.covered:,} events, which were not recorded")
        if self.checksums.startswith(NO_CHECKSUMS):
            missing.append("the content of the events, for which Fencepost has no checksums on this engine")
        return missing

    def release(self) -> None:
        """Free the rows that Spark caches for the DataFrames; using them again computes them again."""
        for frame in self._kept:
            frame.unpersist()

    def busiest(self, top: int = TOP) -> list[dict[str, Any]]:
        """The shapes that most appends were conditional on."""
        return _rows(self.boundaries.orderBy(F.desc("appends"), "shape"), top)

    def closest(self, top: int = TOP) -> list[dict[str, Any]]:
        """The decisions that came closest to a conflict; those with events in between come first."""
        near = self.conditions.where("margin IS NOT NULL AND conflict IS NULL AND kind = 'condition'")
        return _rows(near.orderBy(F.desc("close"), "margin", F.desc("window"), "first"), top)

    def widest(self, top: int = TOP) -> list[dict[str, Any]]:
        """Boundaries that ask for types that none of their events ever had."""
        return _rows(self.wider.orderBy(F.desc("conditions"), "item"), top)


def audit(
    spark: SparkSession,
    store: Store,
    *,
    up_to: int | None = None,
    lake: Folder | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Audit:
    """Check the log up to its head or `up_to`, and prove every condition that was recorded with it.

    With the folder of a `lake` of the same log, the audit is of the lake's files, as far as they go, and of the store
    for the rest: what the store holds up to the lake's position is not checked.
    """
    say = on_progress or (lambda doing: None)
    address, up_to = bounds_of(store, up_to)
    scan = scan_of(address)
    if address.kind is LAKE and (broken := verify(spark, address.path)):
        return _of_damaged_lake(spark, broken)
    with scan.open() as opened:
        head = opened.head() if up_to is None else min(opened.head(), up_to)
        above = check_end(opened, head) if up_to is None else []
    prefix = _prefix(store, address, head, lake)
    columns = f"{position_column(address)}, type string, tags array<string>, id string"
    say("checksums")
    found: dict[str, Found] = {}
    checksums, found["checksum"], lake_is_sound = check_checksums(spark, prefix)
    if not lake_is_sound:
        prefix = replace(prefix, lake=None)  # Spark's own reader would fail; ours reports the damage
    events = events_of(spark, prefix, columns=columns)
    # Several checks use these, and reading them takes most of the time.
    events.persist()
    appends = recorded(spark, prefix).persist()
    try:
        say("positions, ids and appends")
        total, types, found["position"] = check_positions(
            events, gaps=address.kind.has_gaps, begins=1 if isinstance(scan, SqliteScan) else None
        )
        found["id"] = check_ids(events)
        count, covered, found["append"] = check_appends(appends)
        found["append"] += above
        say("conditions")
        questions = questions_of(appends).persist()
        pairs = matched_items(events, questions).persist()
        proofs = proofs_of(pairs, questions).persist()
        is_readable = F.col("kind") != UNREADABLE
        proven, failed, unreadable = proofs.agg(
            F.count_if(is_readable), F.count_if(F.col("conflict").isNotNull()), F.count_if(~is_readable)
        ).collect()[0]
        conditions = described(proofs.where(is_readable), questions)
        found |= _refuted(conditions) if failed else {}
        found["record"] = _unreadable(questions) if unreadable else []
    finally:
        events.unpersist()
        appends.unpersist()
    return Audit(
        head=head,
        events=total,
        appends=count,
        covered=covered,
        proven=proven,
        checksums=checksums,
        violations=tuple(Violation(kind, place, what) for kind in KINDS for place, what in found.get(kind, [])),
        refuted=failed,
        conditions=conditions,
        boundaries=_boundaries(conditions),
        wider=_wider(pairs, questions, len(types)),
        _kept=(questions, pairs, proofs),
    )


def _of_damaged_lake(spark: SparkSession, broken: Sequence[str]) -> Audit:
    """A damaged lake is the finding. What its other files say is not checked, because nothing could be proven by it."""
    appends = spark.createDataFrame([], "first long, last long, conditions string, unless string")
    questions = questions_of(appends)
    events = spark.createDataFrame([], "position long, type string, tags array<string>, id string")
    pairs = matched_items(events, questions)
    conditions = described(proofs_of(pairs, questions), questions)
    return Audit(
        head=0,
        events=0,
        appends=0,
        covered=0,
        proven=0,
        checksums="SHA-256 of every file; nothing else was checked, because the lake is damaged",
        violations=tuple(Violation("checksum", 0, problem) for problem in broken[:NAMED]),
        refuted=0,
        conditions=conditions,
        boundaries=_boundaries(conditions),
        wider=_wider(pairs, questions, 0),
        _kept=(),
    )


def _prefix(store: Store, address: Address, head: int, lake: Folder | None) -> Snapshot:
    """What is audited. The lake that the session names for the store is not used: an audit is of what it is told."""
    if lake is not None or address.kind is LAKE or isinstance(store, Snapshot):
        return snapshot(store, up_to=head, lake=lake)
    return Snapshot(address, head)


def proofs_of(pairs: DataFrame, questions: DataFrame) -> DataFrame:
    """A row for each condition: how far it was from a conflict, and the last conflicting event, if any."""
    answers = answered(pairs, questions.select("item", "first", "last", "kind", "number", "after"))
    judged = answers.groupBy("first", "last", "kind", "number", "after").agg(
        F.max(F.when(F.col("last_match") <= F.col("after"), F.col("last_match"))).alias("last_seen"),
        F.max(F.when(F.col("last_match") > F.col("after"), F.col("last_match"))).alias("last_conflict"),
        F.sum("matched").alias("matched"),
    )
    window = F.greatest(F.col("first") - 1 - F.col("after"), F.lit(0))
    margin = F.col("after") - F.col("last_seen")
    return judged.select(
        *CONDITION_KEY,
        "last",
        "after",
        "matched",
        window.alias("window"),
        margin.alias("margin"),
        F.coalesce(margin < window, F.lit(False)).alias("close"),
        F.col("last_conflict").alias("conflict"),
    )


def described(proofs: DataFrame, questions: DataFrame) -> DataFrame:
    """The proofs with the texts of their boundaries, which are long and were left out of the join before."""
    texts = questions.where("boundary IS NOT NULL").select(*CONDITION_KEY, "boundary", "shape")
    return proofs.join(texts, list(CONDITION_KEY)).select(
        "first",
        "last",
        "kind",
        "number",
        "after",
        "boundary",
        "shape",
        "matched",
        "window",
        "margin",
        "close",
        "conflict",
    )


def _refuted(conditions: DataFrame) -> dict[str, Found]:
    found: dict[str, Found] = {"condition": [], "unless": []}
    for row in conditions.where("conflict IS NOT NULL").orderBy("first", "kind", "number").limit(NAMED).collect():
        query = f"{row['shape']}, {row['boundary']}"
        if row["kind"] == "unless":
            what = f"stored although position {row['conflict']} matches its unless ({query})"
        else:
            what = f"stored although position {row['conflict']}, after {row['after']}, matches its condition ({query})"
        found[row["kind"]].append((row["first"], f"the append from {row['first']} to {row['last']} was {what}"))
    return found


def _unreadable(questions: DataFrame) -> Found:
    rows = questions.where(F.col("kind") == UNREADABLE).limit(NAMED).collect()
    return sorted((row["first"], f"what was recorded of it cannot be decoded: {row['boundary']}") for row in rows)


def _boundaries(conditions: DataFrame) -> DataFrame:
    """For each shape: how often it was used, by how many boundaries, and how close conflicts came."""
    return conditions.groupBy("kind", "shape").agg(
        F.countDistinct("first").alias("appends"),
        F.countDistinct(F.xxhash64("boundary")).alias("boundaries"),
        F.avg("matched").alias("matched"),
        F.percentile_approx("window", 0.5).alias("median_window"),
        F.max("window").alias("longest_window"),
        F.min("margin").alias("smallest_margin"),
        F.percentile_approx("margin", 0.5).alias("median_margin"),
        F.sum(F.col("close").cast("long")).alias("close_calls"),
        F.sum(F.col("conflict").isNotNull().cast("long")).alias("violations"),
    )


def _wider(pairs: DataFrame, questions: DataFrame, every_type: int) -> DataFrame:
    """Shapes of items that ask for more types than their events ever had."""
    found = pairs.groupBy("item").agg(F.collect_set("type").alias("found"))
    asked = (
        questions.where("item IS NOT NULL")
        .groupBy("item_shape", "item")
        .agg(F.count("*").alias("conditions"), F.first("item_types").alias("asked"))
    )
    return (
        asked.join(found, "item", "left")
        .groupBy("item_shape")
        .agg(
            F.sum("conditions").alias("conditions"),
            F.first("asked").alias("asked"),  # a shape names its types, so all of its items have the same
            F.array_sort(F.array_distinct(F.flatten(F.collect_set("found")))).alias("found"),
        )
        .select(
            F.col("item_shape").alias("item"),
            "conditions",
            "asked",
            "found",
            F.array_except("asked", "found").alias("unused"),
        )
        .where(
            (F.size("unused") > 0) | (F.size("found") == 0) | ((F.size("asked") == 0) & (F.size("found") < every_type))
        )
    )


def _rows(frame: DataFrame, top: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(top).collect()]
