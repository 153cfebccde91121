"""From the log to the lake to tables, on Spark: a pipeline to copy.

    store ── lake ─┬─ movements ─┬─ flows        what came in and went out, by day
                   │             └─ flags ── store   transfers that are passed on at once, told to the store
                   └─ balances                   a view, by the projection that the service decides with

    fencepost pipeline examples.wallet.pipeline --store wallet.db --folder wallet-lake

runs it once; with `--every "10 seconds"` it stays. Each arrow is a streaming query with a checkpoint
of its own, so the whole can be killed at any point and started again: nothing is lost or doubled.
Production is read by the first arrow alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from fencepost.spark import View, lake, place_of

from ..domain import Balance

WALLETS = "wallet_id string, from_wallet_id string, to_wallet_id string"
FIELDS = f"{WALLETS}, transfer_id string, initial_balance long, amount long"
MOVEMENTS = "position long, at timestamp, day date, type string, transfer_id string, wallet_id string, amount long"
PASSED_ON = "1 hour"  # a transfer that is passed on later than this is not suspicious
LARGE = 1_000


def pipeline(spark: SparkSession, store: str, folder: str, trigger: dict[str, Any]) -> Iterator[StreamingQuery]:
    """Start one query after the other. Run once, each has ended before the next is asked for."""
    events_lake, movements = f"{folder}/lake", f"{folder}/movements"

    yield lake.follow(spark, store, events_lake, checkpoint=f"{folder}/checkpoints/lake", name="lake", **trigger)

    balances = View(Balance, by="wallet_id", at=f"{folder}/balances", store=f"lake:{events_lake}", spark=spark)
    yield balances.follow(checkpoint=f"{folder}/checkpoints/balances", name="balances", **trigger)

    def started(frame: DataFrame, name: str, kind: str, **options: str) -> StreamingQuery:
        writer = frame.writeStream.queryName(name).format(kind).options(**options)
        return writer.option("checkpointLocation", f"{folder}/checkpoints/{name}").trigger(**trigger).start()

    # An event becomes a row for each wallet that it moves money of: a transfer is two.
    columns = "position long, type string, data string, recorded_at timestamp"
    events = spark.readStream.format("fencepost").schema(columns).option("store", f"lake:{events_lake}").load()
    typed, amount = events.select("*", F.from_json("data", FIELDS).alias("of")), F.col("of.amount")

    def side(wallet: str, amount: Column) -> Column:
        return F.struct(F.col(f"of.{wallet}").alias("wallet_id"), amount.alias("amount"))

    sides = (
        F.when(F.col("type") == "WalletOpened", F.array(side("wallet_id", F.col("of.initial_balance"))))
        .when(F.col("type") == "DepositMade", F.array(side("wallet_id", amount)))
        .when(F.col("type") == "WithdrawalMade", F.array(side("wallet_id", -amount)))
        .when(
            F.col("type") == "MoneyTransferred", F.array(side("from_wallet_id", -amount), side("to_wallet_id", amount))
        )
    )
    moved = typed.select("*", F.explode(sides).alias("side")).selectExpr(
        "position", "recorded_at AS at", "date(recorded_at) AS day", "type", "of.transfer_id", "side.*"
    )
    Path(movements).mkdir(parents=True, exist_ok=True)
    yield started(moved, "movements", "parquet", path=movements)

    # A day that has changed is counted anew, from all of its movements: so repeating a batch has no effect.
    def count_days(batch: DataFrame, batch_id: int) -> None:
        days = [row["day"] for row in batch.select("day").distinct().collect()]
        whole = batch.sparkSession.read.schema(MOVEMENTS).parquet(movements).where(F.col("day").isin(days))
        came, went = F.sum(F.greatest("amount", F.lit(0))), -F.sum(F.least("amount", F.lit(0)))
        flows = whole.groupBy("day", "type").agg(F.count("*").alias("count"), came.alias("came"), went.alias("went"))
        writer = flows.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("day").parquet(f"{folder}/flows")

    new = spark.readStream.schema(MOVEMENTS).parquet(movements)
    counting = new.writeStream.foreachBatch(count_days).queryName("flows").trigger(**trigger)
    yield counting.option("checkpointLocation", f"{folder}/checkpoints/flows").start()

    # Money that came by a transfer and goes on by another, nearly all of it: told to the store, for the service.
    sent = new.where("type = 'MoneyTransferred' AND amount < 0").withWatermark("at", PASSED_ON)
    got = new.where(f"type = 'MoneyTransferred' AND amount >= {LARGE}").withWatermark("at", PASSED_ON)
    passed_on = got.alias("got").join(
        sent.alias("sent"),
        F.expr(f"""got.wallet_id = sent.wallet_id AND sent.position > got.position AND -sent.amount >= 0.9 * got.amount
            AND sent.at BETWEEN got.at AND got.at + INTERVAL {PASSED_ON}"""),
    )
    flags = passed_on.selectExpr(
        "'TransferFlagged' AS type",
        "array('transfer_id:' || sent.transfer_id, 'wallet_id:' || sent.wallet_id) AS tags",
        "to_json(named_struct('transfer_id', sent.transfer_id, 'wallet_id', sent.wallet_id, 'amount', -sent.amount, "
        "'received_by', got.transfer_id)) AS data",
    )
    yield started(flags, "flags", "fencepost", **place_of(store))


def results(spark: SparkSession, folder: str) -> dict[str, DataFrame]:
    """What there is to look at afterwards."""
    balances = View(Balance, by="wallet_id", at=f"{folder}/balances", spark=spark).latest()
    flows = spark.read.parquet(f"{folder}/flows")
    return {
        "balances": balances.select("wallet_id", "owner", "amount", "position").orderBy(F.desc("amount"), "wallet_id"),
        "flows": flows.select("day", "type", "count", "came", "went").orderBy("day", "type"),
    }
