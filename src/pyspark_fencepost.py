"""Makes `format("fencepost")` known to every Spark session, without a call to `fencepost.spark.register`.

Spark imports each installed module whose name begins with `pyspark_` and registers its `DefaultSource`, when a session
first looks up a Python data source. tests/spark/slow/test_discovery.py checks it.
"""

from __future__ import annotations

from fencepost.spark.source import FencepostSource as DefaultSource

__all__ = ["DefaultSource"]
