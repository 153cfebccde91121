"""Whether this Spark session can itself open the files of a lake or a view.

Spark's own Parquet reader opens files through Hadoop. It can open those of an object store only if the connector for
that store is on the class path and configured, which the driver finds out by asking Spark for one of the files. If
that fails for whatever reason, Python reads the files in the workers, with the credentials of the environment.
tests/spark/slow/test_object_lakes_on_spark.py holds this.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from ...address import hadoop_url, object_url


class SizedFile(Protocol):
    """A file as a manifest lists it."""

    @property
    def path(self) -> str: ...

    @property
    def bytes(self) -> int: ...


def native_folder(spark: SparkSession, folder: str, file: SizedFile) -> str | None:
    """The folder, or URL, as Spark's own readers name it; None if this session cannot open the given file there."""
    url = object_url(folder, "folder")
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
