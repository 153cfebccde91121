"""Spark's readers of a log: `spark.read.format("fencepost")` and `spark.readStream.format("fencepost")`.

batch       the data source that Spark creates, and its batch reader
stream      the streaming reader, whose offsets are positions
"""

from __future__ import annotations

from .batch import FencepostSource

__all__ = ["FencepostSource"]
