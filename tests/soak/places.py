"""Empty places for a soak run: SQLite files in a folder, or schemas of a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import psycopg

import fencepost


def sqlite_place(folder: Path) -> tuple[str, str]:
    """The addresses of a store and of a target."""
    return str(folder / "log.db"), str(folder / "views.db")


def postgres_place(url: str, name: str) -> tuple[str, str]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}_views".encode())
    url += "&" if "?" in url else "?"
    fencepost.open(f"{url}schema={name}", create=True).close()
    return f"{url}schema={name}", f"{url}schema={name}_views"
