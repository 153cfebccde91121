"""The tables and the queries that fill them; Spark determines the order.

store ─┬─ movements ─┬─ daily_flows
       │             └─ flags ── store
       └─ balances
"""

from __future__ import annotations

import os

from examples.wallet.domain import Balance
from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import fencepost.spark

WALLETS = "wallet_id string, from_wallet_id string, to_wallet_id string"
FIELDS = f"{WALLETS}, transfer_id string, initial_balance long, amount long"
COLUMNS = "position long, type string, data string, recorded_at timestamp"

spark = fencepost.spark.register(SparkSession.active())
store = os.environ["WALLET_STORE"]


def moved() -> DataFrame:
    """A row for each wallet that an event moves money of."""
    events = spark.readStream.format("fencepost").schema(COLUMNS).options(**fencepost.spark.place_of(store)).load()
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
    return typed.select("*", F.explode(sides).alias("side")).selectExpr(
        "position", "recorded_at AS at", "date(recorded_at) AS day", "type", "of.transfer_id", "side.*"
    )


@dp.table
def movements() -> DataFrame:
    """On each run only what is new is read."""
    return moved()


@dp.materialized_view
def daily_flows() -> DataFrame:
    """What came in and went out, by day."""
    came, went = F.sum(F.greatest("amount", F.lit(0))), -F.sum(F.least("amount", F.lit(0)))
    return (
        spark.read.table("movements")
        .groupBy("day", "type")
        .agg(F.count("*").alias("count"), came.alias("came"), went.alias("went"))
    )


dp.create_sink("flags", "fencepost", fencepost.spark.place_of(store))


@dp.append_flow(target="flags")
def flagged() -> DataFrame:
    """Money that came by a transfer and goes on by another, nearly all of it: told to the store, for the service."""
    # Not from the table: a watermark cannot be put on one that the first run is yet to make.
    transfers = moved().where("type = 'MoneyTransferred'").withWatermark("at", "1 hour")
    got, sent = transfers.where("amount >= 1000").alias("got"), transfers.where("amount < 0").alias("sent")
    passed_on = got.join(
        sent,
        F.expr("""got.wallet_id = sent.wallet_id AND sent.position > got.position AND -sent.amount >= 0.9 * got.amount
            AND sent.at BETWEEN got.at AND got.at + INTERVAL 1 HOUR"""),
    )
    return passed_on.selectExpr(
        "'TransferFlagged' AS type",
        "array('transfer_id:' || sent.transfer_id, 'wallet_id:' || sent.wallet_id) AS tags",
        "to_json(named_struct('transfer_id', sent.transfer_id, 'wallet_id', sent.wallet_id, 'amount', -sent.amount, "
        "'received_by', got.transfer_id)) AS data",
    )


# Spark looks at a frame when a fold is made of it, which it forbids inside of what it declares.
folded = fencepost.spark.fold(spark, store, Balance, by="wallet_id")


@dp.materialized_view
def balances() -> DataFrame:
    """By the projection that the service decides with; folded from the beginning on every run."""
    return folded
