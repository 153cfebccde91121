"""The default engine: one SQLite file. `engine.py` says how it works."""

from .engine import SqliteEngine
from .maintenance import Problem, Report, backup, verify

__all__ = ["Problem", "Report", "SqliteEngine", "backup", "verify"]
