from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.small import shrink


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch.setattr)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The folder in which the store is until something happens."""
    folder = tmp_path / "before"
    folder.mkdir()
    return folder


@pytest.fixture
def after(tmp_path: Path) -> Iterator[Path]:
    """The folder as the machine finds it afterwards.

    Thousands of times, so it is kept in memory where there is such a place: syncs cost nothing there.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)
