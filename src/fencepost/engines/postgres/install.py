"""Creating a store in a database, and checking its version.

A store is a schema; a database can hold several. `install` runs the files of the folder sql in one transaction, so a
store exists completely or not at all. tests/postgres/test_install.py checks this.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import psycopg

from ...errors import FormatUnsupported, InvalidInput
from .addresses import parameters_of
from .error_mapping import translated

VERSION: Final = 1  # of what the files of the folder sql create
LOCK_CLASS: Final = 1179537987  # the first key of every advisory lock of Fencepost, as in the folder sql
DEFAULT_SCHEMA: Final = "fencepost"
FILES: Final = ("tables.sql", "search.sql", "append.sql", "read.sql", "recorded_appends.sql")


def install(url: str, schema: str = DEFAULT_SCHEMA) -> bool:
    """Create a store in the schema, which is created if it does not exist.

    Returns False if there is a store already.
    """
    parameters_of(url)
    with translated(), psycopg.connect(url, client_encoding="UTF8") as connection:
        # Of two concurrent installations, the second waits and finds the store of the first.
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", [LOCK_CLASS])
        if installed_version(connection, schema) is not None:
            check_version(connection, schema)
            return False
        encoding = connection.execute("SHOW server_encoding").fetchone()
        if encoding != ("UTF8",):
            raise FormatUnsupported(
                f"the encoding of the database is {encoding[0] if encoding else None}, but types and tags need UTF8"
            )
        connection.execute(script(schema).encode())
        return True


def lock_log(connection: psycopg.Connection[Any], name: str, patience_s: float = 0.0) -> None:
    """Take the lock under which positions are assigned, until the transaction ends. `name` is the quoted schema.

    Waits for at most `patience_s`, or without a limit if that is 0.
    """
    connection.execute(f"SELECT {name}.wait_for_lock(%s::integer)".encode(), [int(patience_s * 1_000)])


def read_head(connection: psycopg.Connection[Any], name: str) -> int:
    """The last position, 0 if there are no events. `name` is the quoted schema."""
    row = connection.execute(f"SELECT coalesce(max(position), 0) FROM {name}.event".encode()).fetchone()
    assert row is not None
    return int(row[0])


def script(schema: str = DEFAULT_SCHEMA) -> str:
    """The statements that create a store in the schema."""
    folder = files(__package__) / "sql"
    text = "\n\n".join((folder / name).read_text() for name in FILES)
    if schema == DEFAULT_SCHEMA:
        return text
    name = quoted(schema)
    text = re.sub(r"\bfencepost\.(?=[a-z_]+\b)", f"{name}.", text)
    return text.replace("SCHEMA IF NOT EXISTS fencepost;", f"SCHEMA IF NOT EXISTS {name};")


def quoted(schema: str) -> str:
    """The name as an SQL identifier. It is also used inside literals, so special characters are refused."""
    if not isinstance(schema, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise InvalidInput(
            "schema", f"up to 63 letters, digits and _ are allowed, and no digit at the start, not {schema!r:.80}"
        )
    return f'"{schema}"'


def installed_version(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> int | None:
    """The version of the store in the schema; None if there is no store."""
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{quoted(schema)}.store"]).fetchone()
    if row is None or not row[0]:
        return None
    found = connection.execute(f"SELECT version FROM {quoted(schema)}.store".encode()).fetchone()
    return int(str(found[0])) if found is not None else None


def check_version(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    """Raise `FormatUnsupported` if there is no store in the schema, or one of another version."""
    version = installed_version(connection, schema)
    if version is None:
        raise FormatUnsupported(
            f"there is no Fencepost store in the schema {schema!r} of the database {connection.info.dbname!r}: "
            f"run `fencepost postgres install`, or open it with create=True"
        )
    if version != VERSION:
        raise FormatUnsupported(
            f"the store in the schema {schema!r} has version {version}, this library knows version {VERSION}: "
            "use the version of Fencepost that made it"
        )
    same = connection.execute(f"SELECT hash = hashtextextended('fencepost', 0) FROM {quoted(schema)}.store".encode())
    if same.fetchone() != (True,):
        raise FormatUnsupported(
            f"the store in the schema {schema!r} was dumped on a machine whose hash function for tags differs: "
            "load its events into a new store"
        )
