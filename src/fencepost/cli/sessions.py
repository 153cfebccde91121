"""A Spark for commands that run on it: where, and only for as long as the command takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .options import extras
from .output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Where Spark runs: local[N], spark://, sc://.",
)


@contextmanager
def spark_session(master: str, command: str, output: Output) -> Iterator[SparkSession]:
    """A session that ends with the command; one that this process has already is used and left running."""
    with extras():
        from pyspark.sql import SparkSession

        from ..spark import session
        from ..spark.interrupts import interruptible, jobs_of
    found = SparkSession.getActiveSession()
    with output.progress.status("starting Spark"):
        spark = session(master, app=f"fencepost {command}")
    with interruptible(jobs_of(spark)):
        try:
            yield spark
        finally:
            if found is None:
                spark.stop()
