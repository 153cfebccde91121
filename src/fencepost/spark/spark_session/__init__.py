"""A SparkSession with the source registered: on this machine, on a cluster, or through Spark Connect.

starting    `session()` and `register()`, and the settings that they make
java        the Java runtime: the machine's own, or one from PyPI
interrupts  Ctrl-C while Spark works
"""

from __future__ import annotations

from .interrupts import interruptible, jobs_of
from .starting import register, session

__all__ = ["interruptible", "jobs_of", "register", "session"]
