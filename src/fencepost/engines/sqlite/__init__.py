"""The default engine: one SQLite file."""

from typing import Unpack

from ...core.address import Address
from ...core.options import SqliteOptions
from .backup import backup
from .engine import SqliteEngine
from .salvage import salvage
from .verify import verify

__all__ = ["SqliteEngine", "backup", "open_engine", "salvage", "verify"]


def open_engine(address: Address, **options: Unpack[SqliteOptions]) -> SqliteEngine:
    if address.read_only:
        options["read_only"] = True
    return SqliteEngine(address.path, **options)
