"""A store as a database of Spark's catalogue: `SELECT * FROM wallets.events`.

    catalog(spark, "wallets", "wallet.db")

Spark passes the options of a table to a Python source only if the query repeats them. So the database has a table
`log`, and over it a permanent view, `events`, whose text repeats the options, among them the position at which it
ends. Without that, each mention of the view in one query would have another head: a self join of a growing log had
rows without a partner. The view moves on when `catalog` is called again. tests/spark/test_catalogue.py checks this.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import SparkSession

from ..errors import InvalidInput
from .basics import Store, address_of
from .scanning import snapshot

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def catalog(spark: SparkSession, name: str, store: Store, *, data: str = "string") -> None:
    """Create or replace the database `name` with the view `events`: the log up to its present head, or a snapshot's.

    Every query reads that prefix. Call this again to move the view on to the head of then.
    `data` is the form of that column: `string`, `binary` or `variant`. The address may not hold a password, because
    Spark keeps it in its catalogue.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput("name", f"letters, digits and _ are needed, not {name!r:.80}")
    address = address_of(store)
    if address.has_secret:
        raise InvalidInput("store", "its address holds a password, and Spark keeps the address in its catalogue")
    given = {**snapshot(store).options, "data": data}
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}.log")
    spark.sql(f"CREATE TABLE {name}.log USING fencepost OPTIONS ({_options(given, ' ')})")
    spark.sql(f"CREATE OR REPLACE VIEW {name}.events AS SELECT * FROM {name}.log WITH ({_options(given, ' = ')})")


def _options(given: dict[str, str], between: str) -> str:
    return ", ".join(f"{name}{between}{_literal(value)}" for name, value in given.items())


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
