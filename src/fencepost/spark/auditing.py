"""The audit: that every decision in the log was safe, proven again from what was recorded with it.

A store that is opened with `record_conditions=True` keeps what each append was conditional on. An append was
safe if, between the position up to which it had read and its own first position, no event matches. That is
asked here of every recorded condition, against the whole log, by code that has nothing in common with
the engine that judged it: matching is a join, and the order of the log is all that is trusted. Ids,
positions, the ranges of appends and checksums are checked besides.

What the proof finds on its way says something about the boundaries: which are the busiest, how close
conflicts came, and which ask for more than has ever been there. `what_if` asks the same of a boundary that
nobody has used yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import InvalidInput
from ..model import Query, checked_position
from .boundaries import UNREADABLE, Boundary, questions_of, supposed_questions
from .log_checks import (
    Found,
    check_appends,
    check_checksums,
    check_end,
    check_ids,
    check_positions,
    damaged_events,
)
from .options import absolute
from .questions import answered, matched_items
from .recorded import recorded
from .scanning import scan_of
from .source import events as events_of
from .sqlite_scan import SqliteScan

NAMED: Final = 100  # violations of conditions that are named one by one; the count is of all
TOP: Final = 10

CONDITION_KEY: Final = ("first", "kind", "number")  # tells one condition from all others
KINDS: Final = ("condition", "unless", "position", "id", "append", "checksum", "record")


@dataclass(frozen=True)
class Violation:
    """Something that must never be: of what kind, at which position, and in words."""

    kind: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind} at position {self.position}: {self.what}"


@dataclass(frozen=True)
class Audit:
    """What an audit has found.

    `conditions`, `boundaries` and `wider` are DataFrames, with columns that docs/reference/spark.md names; the rest is
    small.
    """

    head: int
    events: int
    appends: int  # recorded
    covered: int  # events of recorded appends
    proven: int  # conditions, `unless` included, that were proven or refuted
    checksums: str
    violations: tuple[Violation, ...]
    refuted: int  # conditions that did not hold: violations names the first of them
    conditions: DataFrame = field(repr=False)
    boundaries: DataFrame = field(repr=False)
    wider: DataFrame = field(repr=False)
    _kept: tuple[DataFrame, ...] = field(default=(), repr=False)

    @property
    def sound(self) -> bool:
        return not self.violations

    def release(self) -> None:
        """Let Spark forget what it keeps for the DataFrames; they would be computed anew."""
        for frame in self._kept:
            frame.unpersist()

    def busiest(self, top: int = TOP) -> list[dict[str, Any]]:
        """The shapes that most appends were conditional on."""
        return _rows(self.boundaries.orderBy(F.desc("appends"), "shape"), top)

    def closest(self, top: int = TOP) -> list[dict[str, Any]]:
        """The decisions that a conflict came closest to, those first that others wrote past."""
        near = self.conditions.where("margin IS NOT NULL AND conflict IS NULL AND kind = 'condition'")
        return _rows(near.orderBy(F.desc("close"), "margin", F.desc("window"), "first"), top)

    def widest(self, top: int = TOP) -> list[dict[str, Any]]:
        """Where a boundary asks for types that no event within it ever had."""
        return _rows(self.wider.orderBy(F.desc("conditions"), "item"), top)


@dataclass(frozen=True)
class WhatIf:
    """What another boundary would have done to the recorded decisions."""

    decisions: int  # recorded appends with a condition
    guarded: int  # of them, those for which the boundary says anything
    conflicts: int  # of them, those that it would have refused
    refused: DataFrame = field(repr=False)


def audit(
    spark: SparkSession, store: str, *, upto: int | None = None, on_progress: Callable[[str], None] | None = None
) -> Audit:
    """Prove the log, up to its head or `upto`, and everything that was recorded with it."""
    say = on_progress or (lambda doing: None)
    address = absolute(store)
    scan = scan_of(address)
    with scan.open() as opened:
        head = opened.head() if upto is None else min(opened.head(), checked_position(upto, "upto"))
        above = check_end(opened, head) if upto is None else []
    gaps = address.startswith("fdb:")
    columns = f"position {'decimal(38,0)' if gaps else 'long'}, type string, tags array<string>, id string"
    say("checksums")  # first: what is broken may not be readable either
    found: dict[str, Found] = {}
    checksums, found["checksum"] = check_checksums(spark, scan, head)
    if isinstance(scan, SqliteScan) and found["checksum"]:
        events = damaged_events(spark, scan, head)
    else:
        events = events_of(spark, address, upto=head, columns=columns)
    # Everything is asked of these several times, and reading them is what takes the time.
    events.persist()
    appends = recorded(spark, scan, head).persist()
    try:
        say("positions, ids and appends")
        total, types, found["position"] = check_positions(
            events, gaps=gaps, begins=1 if isinstance(scan, SqliteScan) else None
        )
        found["id"] = check_ids(events)
        count, covered, found["append"] = check_appends(appends)
        found["append"] += above
        say("conditions")
        questions = questions_of(appends).persist()
        pairs = matched_items(events, questions).persist()
        proofs = _proofs(pairs, questions).persist()
        is_readable = F.col("kind") != UNREADABLE
        proven, failed, unreadable = proofs.agg(
            F.count_if(is_readable), F.count_if(F.col("conflict").isNotNull()), F.count_if(~is_readable)
        ).collect()[0]
        conditions = _described(proofs.where(is_readable), questions)
        found |= _refuted(conditions) if failed else {}
        found |= {"record": _unreadable(questions)} if unreadable else {}
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


def what_if(spark: SparkSession, store: str, boundary: Boundary, *, upto: int | None = None) -> WhatIf:
    """How many recorded decisions would have conflicted, had `boundary` been the query of their condition.

    A tag of the query that ends in `:*` stands for those with that beginning which the decision's own conditions
    name: `Query.of(tags={"wallet:*"})` is the boundary around each wallet that it was about. A function from a
    `RecordedAppend` to a query, or None, can say anything else. What the decision had read is what it had
    read: up to the smallest `after` of its conditions.
    """
    if not isinstance(boundary, Query) and not callable(boundary):
        raise InvalidInput("boundary", f"a Query or a function is needed, not {type(boundary).__name__}")
    address = absolute(store)
    scan = scan_of(address)
    with scan.open() as opened:
        head = opened.head() if upto is None else min(opened.head(), checked_position(upto, "upto"))
    events = events_of(spark, address, upto=head, columns="position long, type string, tags array<string>")
    appends = recorded(spark, scan, head)
    questions = supposed_questions(appends, boundary)
    proofs = _proofs(matched_items(events, questions), questions).persist()
    decided = appends.where("conditions <> '[]'").count()
    guarded, conflicts = proofs.agg(F.count("*"), F.count("conflict")).collect()[0]
    refused = _described(proofs.where("conflict IS NOT NULL"), questions)
    return WhatIf(decided, guarded, conflicts, refused.select("first", "last", "after", "boundary", "conflict"))


def _proofs(pairs: DataFrame, questions: DataFrame) -> DataFrame:
    """A row for each condition: how far it was from a conflict, and the last event in its way, if any is."""
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


def _described(proofs: DataFrame, questions: DataFrame) -> DataFrame:
    """The proofs with what they are about, which is long and was left aside."""
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
    """By shape: how busy it was, how many different boundaries had it, and how close conflicts came."""
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
    """Kinds of items that ask for more types than the events within them ever had."""
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
            F.first("asked").alias("asked"),  # a shape names its types, so they are the same for all of its items
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
