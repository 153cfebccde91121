"""The log on Spark: folded into balances, compared with what the subscriber saw, audited, and drawn.

Nothing here knows how the attack went: everything follows from the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

import fencepost.spark

from .proof import Claim
from .screen import Outcome
from .wallet import DEPOSITED, Balance, Deposited, Withdrawn

SLICES = 120  # of time, in the picture
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


@contextmanager
def started() -> Iterator[SparkSession]:
    spark = fencepost.spark.session(app="fencepost demo")
    try:
        yield spark
    finally:
        spark.stop()


def folded(spark: SparkSession, path: str) -> list[Row]:
    """The balance of each wallet, from its events and nothing else."""
    return fencepost.spark.fold(spark, path, Balance, by="wallet").orderBy("wallet").collect()


def agrees(rows: list[Row], outcome: Outcome) -> Claim:
    """Spark, long after the fact, and the subscriber, while it happened, have come to the same balances."""
    here = {row["wallet"]: row["amount"] for row in rows}
    if here != outcome.balances.now:
        return Claim(False, f"Spark folds the log into {here}, and the subscriber saw {outcome.balances.now}")
    lowest = min(row["lowest"] for row in rows)
    if lowest != min(outcome.lowest, 0):
        return Claim(False, f"Spark finds a balance of {lowest}, and the subscriber saw {outcome.lowest} at the lowest")
    return Claim(True, f"Spark folds {outcome.balances.events:,} events into the balances that the subscriber saw")


def audited(spark: SparkSession, path: str) -> Claim:
    """Every condition proven again, by a join over the whole log that shares no code with the store."""
    audit = fencepost.spark.audit(spark, path)
    if not audit.sound:
        return Claim(False, f"the audit has found a violation: {audit.violations[0]}")
    (busiest,) = audit.busiest(1)
    return Claim(
        True,
        f"the audit is clean: each of {audit.proven:,} recorded conditions held at its position, "
        f"and the busiest boundary is {busiest['shape']}",
    )


def queried(spark: SparkSession, path: str, rows: list[Row]) -> Claim:
    """SQL on the fields of the events comes to the same balances as the fold."""
    fencepost.spark.tables(spark, path, [Deposited, Withdrawn])
    moves = "SELECT wallet, amount FROM money_deposited UNION ALL SELECT wallet, -amount FROM money_withdrawn"
    statement = f"SELECT wallet, sum(amount) AS amount FROM ({moves}) GROUP BY wallet"
    found = {row["wallet"]: row["amount"] for row in spark.sql(statement).collect()}
    expected = {row["wallet"]: row["amount"] for row in rows}
    if found != expected:
        return Claim(False, f"SQL on the events finds {found}, and the fold {expected}")
    return Claim(True, f"SQL on typed tables, SELECT wallet, sum(amount), finds the same {len(found)} balances")


def flows(spark: SparkSession, path: str) -> DataFrame:
    """In each slice of time and for each wallet: what came in, what went out, and the lowest balance."""
    columns = "position long, type string, tags array<string>, data string, recorded_at timestamp"
    amount = F.get_json_object("data", "$.amount").cast("long")
    moves = fencepost.spark.events(spark, path, columns=columns).select(
        "position",
        F.expr("substring(tags[0], 8)").alias("wallet"),
        F.when(F.col("type") == DEPOSITED, amount).otherwise(-amount).alias("change"),
        (F.unix_micros("recorded_at") / 1e6).alias("at"),
    )
    wallet, whole = Window.partitionBy("wallet").orderBy("position"), Window.partitionBy()
    began = F.min(F.when(F.col("change") < 0, F.col("at"))).over(whole)  # what was there before is no flow
    timed = moves.select(
        "wallet",
        "change",
        F.sum("change").over(wallet).alias("balance"),
        (F.col("at") - began).alias("second"),
        ((F.max("at").over(whole) - began) / SLICES).alias("width"),
    )
    return (
        timed.where("second >= 0")
        .withColumn("slice", F.least(F.floor(F.col("second") / F.col("width")), F.lit(SLICES - 1)))
        .groupBy("slice", "wallet")
        .agg(
            F.first("width").alias("width"),
            F.sum(F.greatest("change", F.lit(0))).alias("came"),
            F.sum(F.least("change", F.lit(0))).alias("went"),
            F.min("balance").alias("lowest"),
        )
        .orderBy("slice", "wallet")
    )


def draw(spark: SparkSession, paths: Mapping[str, str], target: Path) -> None:
    """Balances above, money that flows below; an attack in each column."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(paths), figsize=(10, 5.2), sharex="col", sharey="row", height_ratios=(2, 1), layout="constrained"
    )
    for (title, path), (above, below) in zip(paths.items(), axes.T, strict=True):
        rows = flows(spark, path).collect()
        above.set_title(title, loc="left", fontweight="bold")
        above.axhline(0, color="black", linewidth=0.8)
        above.axhspan(-10_000, 0, color="#ee6677", alpha=0.12, linewidth=0)
        width = rows[0]["width"]
        for colour, wallet in zip(COLOURS, sorted({row["wallet"] for row in rows}), strict=False):
            own = [row for row in rows if row["wallet"] == wallet]
            times, lows = [row["slice"] * width for row in own], [row["lowest"] for row in own]
            above.plot(times, lows, color=colour, label=wallet, drawstyle="steps-post", linewidth=1.1)
        times = [number * width for number in range(SLICES)]
        for name, label, colour in (("came", "in", "#228833"), ("went", "out", "#ee6677")):
            sums = [sum(row[name] for row in rows if row["slice"] == number) / width for number in range(SLICES)]
            below.bar(times, sums, width=width, align="edge", color=colour, label=label)
        below.axhline(0, color="black", linewidth=0.8)
        below.set_xlabel("seconds")
    lows = [line.get_ydata() for above in axes[0] for line in above.get_lines()[1:]]
    low, high = min(min(low) for low in lows), max(max(low) for low in lows)
    axes[0][0].set_ylim(min(low * 1.08, -0.05 * high), high * 1.08)
    axes[0][0].set_ylabel("lowest balance")
    axes[1][0].set_ylabel("money a second")
    axes[0][-1].legend(frameon=False, ncols=4, loc="upper right", fontsize="small")
    axes[1][-1].legend(ncols=2, loc="lower right", fontsize="small")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
