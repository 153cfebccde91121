"""Creating a store in a database, upgrading one, and checking its version.

A store is a schema; a database can hold several. `install` runs the files of the folder sql in one transaction, so a
store exists completely or not at all. The files can run again: on a store of an older version they add what is
missing and replace the functions. Grants are kept. Afterwards, in a transaction that blocks no reads or appends,
`install` checks the events that an older version has stored. tests/postgres/test_install.py checks all of this.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import psycopg

from ...errors import FormatUnsupported, InvalidInput, StoreCorrupt
from .addresses import parameters_of
from .faults import translated
from .templates import LOCK_CLASS, expand

VERSION: Final = 2  # of what the files of the folder sql create
DEFAULT_SCHEMA: Final = "fencepost"
FILES: Final = ("tables.sql", "search.sql", "append.sql", "read.sql", "recording.sql")


def install(url: str, schema: str = DEFAULT_SCHEMA, *, upgrade: bool = True) -> bool:
    """Create a store in the schema, which is created if it does not exist, or upgrade an older store in place.

    Returns False if there is a store of this version already. Without `upgrade`, an older store is refused.
    """
    parameters_of(url)
    with translated(), psycopg.connect(url, client_encoding="UTF8") as connection:
        # Of two concurrent installations, the second waits and finds the store of the first.
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", [LOCK_CLASS])
        version = installed_version(connection, schema)
        changes = version is None or (upgrade and version < VERSION)
        if version is None:
            encoding = connection.execute("SHOW server_encoding").fetchone()
            if encoding != ("UTF8",):
                raise FormatUnsupported(
                    f"the encoding of the database is {encoding[0] if encoding else None}, but types and tags need UTF8"
                )
        elif changes:
            lock_log(connection, quoted(schema))  # before locks on the tables, in the order in which appends take them
        else:
            check_version(connection, schema)
        if changes:
            connection.execute(script(schema).encode())
            connection.commit()
        _check_stored(connection, schema)
        return changes


def lock_log(connection: psycopg.Connection[Any], name: str) -> None:
    """Take the lock under which positions are assigned, until the transaction ends. `name` is the quoted schema."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s::regclass::oid::int)", [LOCK_CLASS, f"{name}.event"])


def read_head(connection: psycopg.Connection[Any], name: str) -> int:
    """The last position, 0 if there are no events. `name` is the quoted schema."""
    row = connection.execute(f"SELECT coalesce(max(position), 0) FROM {name}.event".encode()).fetchone()
    assert row is not None
    return int(row[0])


def script(schema: str = DEFAULT_SCHEMA) -> str:
    """The statements that create a store in the schema, or upgrade one."""
    folder = files(__package__) / "sql"
    return in_schema("\n\n".join(expand((folder / name).read_text()) for name in FILES), schema)


def in_schema(text: str, schema: str) -> str:
    """Statements that are written for the default schema, changed for another schema."""
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
        needs = f"needs version {VERSION}: run `fencepost postgres install` as its owner, which upgrades it in place"
        knows = f"knows version {VERSION}: use the version of Fencepost that made it, or a later one"
        raise FormatUnsupported(
            f"the store in the schema {schema!r} has version {version}, this library "
            f"{needs if version < VERSION else knows}"
        )
    same = connection.execute(f"SELECT hash = hashtextextended('fencepost', 0) FROM {quoted(schema)}.store".encode())
    if same.fetchone() != (True,):
        raise FormatUnsupported(
            f"the store in the schema {schema!r} was dumped on a machine whose hash function for tags differs: "
            "load its events into a new store"
        )


def _check_stored(connection: psycopg.Connection[Any], schema: str) -> None:
    """Check the events that an older version has stored against the constraints of this version, unless that was done.

    Version 1 relied on its callers to index the fifth and further tags of an event, so missing entries are added first.
    """
    name = quoted(schema)
    unchecked = connection.execute(
        "SELECT c.relname, k.conname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid "
        "WHERE k.connamespace = %s::regnamespace AND k.contype = 'c' AND NOT k.convalidated",
        [name],
    ).fetchall()
    if not unchecked:
        return
    connection.execute(
        f"INSERT INTO {name}.more_tags (tag, position) SELECT hashtextextended(t.tag, 0), e.position "
        f"FROM {name}.event e, unnest(e.tags[5:]) AS t (tag) WHERE t.tag IS NOT NULL ON CONFLICT DO NOTHING".encode()
    )
    try:
        for table, constraint in unchecked:
            connection.execute(f'ALTER TABLE {name}."{table}" VALIDATE CONSTRAINT "{constraint}"'.encode())
    except psycopg.errors.CheckViolation as error:
        problem = f"{error.diag.message_primary} {error.diag.message_detail or ''}".strip()
        raise StoreCorrupt(
            f"the store in the schema {schema!r} has version {VERSION} now and can be used, but an older version "
            f"stored an event that violates a constraint: {problem}"
        ) from error
