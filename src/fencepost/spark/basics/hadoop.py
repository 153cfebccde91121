"""Whether this Spark session can itself open the files of a lake.

Spark's own Parquet reader opens files through Hadoop. It can open those of an object store only if the connector for
that store is on the class path and configured, which the driver finds out by asking Spark for a file of the lake. If
that fails for whatever reason, the Python source reads the lake, with the credentials of the environment.
tests/spark/test_object_lakes.py holds this.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from ...address import hadoop_url, object_url


class StoredFile(Protocol):
    """A file of the lake: its path relative to the lake, and its size."""

    @property
    def path(self) -> str: ...

    @property
    def bytes(self) -> int: ...


def native_folder(spark: SparkSession, folder: str, file: StoredFile) -> str | None:
    """The lake's folder as Spark's own readers name it; None if this session cannot open the given file of the lake."""
    url = object_url(folder, "lake")
    if url is None:
        # Named as a file of this machine, even if Spark's default file system is another one.
        return f"file://{folder}"
    named = hadoop_url(url)
    if named is None:
        return None
    try:
        # The content is not read: only its length is asked for, by the driver and by a task.
        found = spark.read.format("binaryFile").load(f"{named}/{file.path}").select("length").collect()
    except Exception:  # no connector, no credentials, no such file
        return None
    return named if [row["length"] for row in found] == [file.bytes] else None
