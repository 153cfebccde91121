"""Bring the view of balances up to the head of the log, and say what changed. For cron, Airflow, or any scheduler.

    python refresh_balances.py /data/wallet.db /data/balances

It can be started at any time and as often as you like: a refresh that was killed has not happened, a repeated one does
nothing, and of two at the same time one fails without changing anything. Exits with 1 if the refresh fails, so that
the scheduler runs it again.
"""

from __future__ import annotations

import sys

from examples.wallet.domain import Balance
from pyspark.sql import SparkSession

import fencepost.spark


def refresh(spark: SparkSession, store: str, folder: str) -> str:
    view = fencepost.spark.View(Balance, by="wallet_id", at=folder, store=store, spark=spark)
    with fencepost.spark.progress(spark, "refreshing balances"):
        done = view.refresh()
    return f"balances cover position {done.position}; {done.changed} wallets have changed"


def main() -> None:
    store, folder = sys.argv[1:]
    spark = fencepost.spark.session(app="refresh balances")
    try:
        print(refresh(spark, store, folder))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
