"""The PostgreSQL engine: a store in one schema of a PostgreSQL database.

The server keeps the log and judges the appends, in the functions of the folder sql. This package sends batches and
reads events, keeps connections, and reports failures as Fencepost's errors.
"""

try:
    import psycopg as psycopg
except ImportError as error:
    raise ImportError("PostgreSQL needs the extra 'postgres': pip install 'fencepost[postgres]'") from error

from typing import Any, Unpack

from ...core.address import Address, Tables
from ...core.options import PostgresOptions
from .addresses import parameters_of
from .engine import PostgresEngine
from .install import DEFAULT_SCHEMA, install, quoted
from .load import load


def open_engine(address: Address, **options: Unpack[PostgresOptions]) -> PostgresEngine:
    """Open the store at the address. Options that are passed take precedence over those in the address."""
    given: dict[str, Any] = {**address.options, **options}
    return PostgresEngine(address.location, **given)


def tables_at(address: Address) -> Tables:
    """The tables of the store, without a connection. Raises `InvalidInput` if the address is malformed."""
    parameters_of(address.location)
    schema = quoted(str(address.options.get("schema", DEFAULT_SCHEMA)))
    return Tables(address.location, f"{schema}.event", f"{schema}.append")


__all__ = ["open_engine", "tables_at", "PostgresEngine", "install", "load"]
