"""Making a store in a database, and knowing one.

A store is a schema: several stores share one database under different schemas. `install` runs
postgres.sql and recording.sql in one transaction, so a store is there whole or not at all; where one is there already
it does nothing.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

import psycopg

from ...errors import FormatUnsupported, InvalidInput
from .faults import translated

VERSION: Final = 1  # of postgres.sql
DEFAULT_SCHEMA: Final = "fencepost"
SCRIPTS: Final = ("postgres.sql", "recording.sql")


def install(url: str, schema: str = DEFAULT_SCHEMA) -> bool:
    """Make a store in the schema, which is made as well if need be. False: one of this version was there."""
    with translated(), psycopg.connect(url, client_encoding="UTF8") as connection:
        # Two that install at once: the second finds what the first has made.
        connection.execute("SELECT pg_advisory_xact_lock(1179537987, 0)")
        if installed_version(connection, schema) is not None:
            check_version(connection, schema)
            return False
        encoding = connection.execute("SHOW server_encoding").fetchone()
        if encoding != ("UTF8",):
            raise FormatUnsupported(f"the database's encoding is {encoding}, and types and tags need UTF8")
        connection.execute(script(schema).encode())
        return True


def script(schema: str = DEFAULT_SCHEMA) -> str:
    """The statements that make a store in the schema."""
    text = "\n\n".join((files(__package__) / name).read_text() for name in SCRIPTS)
    if schema == DEFAULT_SCHEMA:
        return text
    name = quoted(schema)
    text = re.sub(r"\bfencepost\.(?=[a-z_]+\b)", f"{name}.", text)
    return text.replace("SCHEMA IF NOT EXISTS fencepost;", f"SCHEMA IF NOT EXISTS {name};")


def quoted(schema: str) -> str:
    """The name as SQL has it. It also stands in literals of postgres.sql, so quotes and the like are refused."""
    if not isinstance(schema, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise InvalidInput("schema", f"letters, digits and _ are allowed, up to 63, not {schema!r:.80}")
    return f'"{schema}"'


def installed_version(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> int | None:
    """The version of the store in the schema; None if there is none."""
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{quoted(schema)}.store"]).fetchone()
    if row is None or not row[0]:
        return None
    found = connection.execute(f"SELECT version FROM {quoted(schema)}.store".encode()).fetchone()
    return int(str(found[0])) if found is not None else None


def check_version(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    """Refuse what is no store, or a newer one."""
    version = installed_version(connection, schema)
    if version is None:
        raise FormatUnsupported(
            f"there is no Fencepost store in the schema {schema!r} of the database {connection.info.dbname!r}: "
            f"run `fencepost postgres install`, or open it with create=True"
        )
    if version != VERSION:
        raise FormatUnsupported(
            f"the store in the schema {schema!r} has version {version}, this library knows version {VERSION}: "
            "use the version of Fencepost that made it, or a later one"
        )
    same = connection.execute(f"SELECT hash = hashtextextended('fencepost', 0) FROM {quoted(schema)}.store".encode())
    if same.fetchone() != (True,):
        raise FormatUnsupported(
            f"the store in the schema {schema!r} was dumped on a machine of another kind, which hashes tags in another "
            "way: load its events into a new store"
        )
