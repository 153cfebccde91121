"""The contract, kept by the SQLite engine."""

from itertools import count
from pathlib import Path

import pytest

import fencepost
from fencepost.testing import Awaitable, DurableEventStoreContract
from fencepost.testing.stores import Store


class TestSqlite(DurableEventStoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{number}.db" for number in count())

    def open_store(self) -> Store:
        self.path = next(self.paths)
        return fencepost.open(self.path)

    def open_again(self) -> Store:
        return fencepost.open(self.path)


class TestSqliteAwaitable(Awaitable, TestSqlite):
    """The same through `fencepost.aio`."""
