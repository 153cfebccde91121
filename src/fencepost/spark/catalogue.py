"""A store as a database of Spark's catalogue: `SELECT * FROM wallets.events`.

    catalog(spark, "wallets", "wallet.db")

Spark passes the options of a table to a Python source only if the query repeats them. So the database has a table
`log`, and over it a permanent view, `events`, whose text repeats the options. Unlike a temporary view, the view is
planned anew for each query, so it is always the log up to its present head. tests/spark/test_catalogue.py holds this.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import SparkSession

from ..errors import InvalidInput
from .basics import Store, address_of, place_of

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def catalog(spark: SparkSession, name: str, store: Store, *, data: str = "string") -> None:
    """Create or replace the database `name` with the view `events`: the log, up to its head when a query is planned.

    `data` is the form of that column: `string`, `binary` or `variant`. The address may not hold a password, because
    Spark keeps it in its catalogue.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput("name", f"letters, digits and _ are needed, not {name!r:.80}")
    address = address_of(store)
    if address.has_secret:
        raise InvalidInput("store", "its address holds a password, and Spark keeps the address in its catalogue")
    given = {**place_of(address), "data": data}
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}.log")
    spark.sql(f"CREATE TABLE {name}.log USING fencepost OPTIONS ({_options(given, ' ')})")
    spark.sql(f"CREATE OR REPLACE VIEW {name}.events AS SELECT * FROM {name}.log WITH ({_options(given, ' = ')})")


def _options(given: dict[str, str], between: str) -> str:
    return ", ".join(f"{name}{between}{_literal(value)}" for name, value in given.items())


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
