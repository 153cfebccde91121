from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.small import shrink

import fencepost
from fencepost import EventStore


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch.setattr)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[[], EventStore]]:
    """Opens another handle on the store at each call; all are closed in the end."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(fencepost.open(path))
