"""The default engine: one SQLite file."""

from typing import Any

from ...address import Address
from .backup import backup
from .engine import SqliteEngine
from .report import Problem, Report
from .salvage import Salvage, salvage
from .verify import verify

__all__ = ["Problem", "Report", "Salvage", "SqliteEngine", "backup", "open_engine", "salvage", "verify"]


def open_engine(address: Address, **options: Any) -> SqliteEngine:
    return SqliteEngine(address.path, **options | ({"read_only": True} if address.read_only else {}))
