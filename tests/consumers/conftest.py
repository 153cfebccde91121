from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

import fencepost

from .places import Place

EFFECT = {
    "sqlite": "CREATE TABLE effect (number INTEGER PRIMARY KEY AUTOINCREMENT, position BIGINT, pid BIGINT)",
    "postgres": "CREATE TABLE effect (number BIGSERIAL PRIMARY KEY, position BIGINT, pid BIGINT)",
}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store, and a target with the table `effect`."""
    if request.param == "sqlite":
        made = Place(str(tmp_path / "log.db"), str(tmp_path / "views.db"), "sqlite")
    else:
        url: str = request.getfixturevalue("postgres_url")
        # Not by a counter: Spark's tests import this fixture, so that this module is loaded twice.
        name = f"consumers_{uuid4().hex[:12]}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}_views".encode())
        url += "&" if "?" in url else "?"
        made = Place(f"{url}schema={name}", f"{url}schema={name}_views", "postgres")
        fencepost.open(made.address, create=True).close()
    made.execute(EFFECT[made.kind])
    return made
