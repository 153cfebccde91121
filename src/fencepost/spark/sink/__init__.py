"""Spark's writer into a log: tasks stage rows, the driver stores them, each batch once.

delivery    how a batch gets into the store once, however often Spark repeats it
staging     the folder in which rows wait between the tasks and the driver
rows        from the rows of a DataFrame to events that a store accepts
rejection   the rows that a condition rejected, as Parquet files
"""

from __future__ import annotations

from .delivery import writer_of

__all__ = ["writer_of"]
