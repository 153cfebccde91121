"""The PostgreSQL engine: a store in one schema of a PostgreSQL database.

The server keeps the log and judges the appends, in the functions of the folder sql. This package sends batches and
reads events, keeps connections, and reports failures as Fencepost's errors.
"""

try:
    import psycopg as psycopg
except ImportError as error:
    raise ImportError("PostgreSQL needs the extra 'postgres': pip install 'fencepost[postgres]'") from error

from typing import Any

from ...address import Address
from .engine import PostgresEngine
from .install import install
from .load import load


def open_engine(address: Address, **options: Any) -> PostgresEngine:
    """Open the store at the address. Options that are passed take precedence over those in the address."""
    return PostgresEngine(address.location, **{**address.options, **options})


__all__ = ["open_engine", "PostgresEngine", "install", "load"]
