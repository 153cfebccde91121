from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import psycopg
import pytest

import fencepost

from .places import Place

EFFECT = {
    "sqlite": "CREATE TABLE effect (number INTEGER PRIMARY KEY AUTOINCREMENT, position BIGINT, pid BIGINT)",
    "postgres": "CREATE TABLE effect (number BIGSERIAL PRIMARY KEY, position BIGINT, pid BIGINT)",
}
NUMBERS = count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store, and a target with the table `effect`."""
    if request.param == "sqlite":
        made = Place(str(tmp_path / "log.db"), str(tmp_path / "views.db"), "sqlite")
    else:
        url: str = request.getfixturevalue("postgres_url")
        name = f"consumers_{os.getpid()}_{next(NUMBERS)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}_views".encode())
        url += "&" if "?" in url else "?"
        made = Place(f"{url}schema={name}", f"{url}schema={name}_views", "postgres")
        fencepost.open(made.address, create=True).close()
    made.execute(EFFECT[made.kind])
    return made
