"""Stores to decide on: each test that asks for an `address` runs on every engine that takes concurrent writers."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

import fencepost


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is empty, and that several processes can open."""
    return new_address(request, tmp_path)


def new_address(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store of the engine that the fixture's parameter names."""
    if request.param == "sqlite":
        return str(folder / "store.db")
    url = request.getfixturevalue("postgres_url")
    url = f"{url}{'&' if '?' in url else '?'}schema=s{uuid4().hex[:12]}"
    fencepost.open(url, create=True).close()
    return url
