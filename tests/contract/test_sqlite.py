"""The contract, kept by the SQLite engine."""

from itertools import count
from pathlib import Path

import pytest

import fencepost
from fencepost import EventStore
from fencepost.testing import Awaitable, DurableEventStoreContract, RestoringContract, SharedRecordingContract
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


class TestSqliteThatRecords(SharedRecordingContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "recorded.db"

    def open_recording(self) -> EventStore:
        return fencepost.open(self.path, record_conditions=True)

    def open_silent(self) -> EventStore:
        return fencepost.open(self.path)


class TestSqliteThatIsRestored(RestoringContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"restored-{number}.db" for number in count())

    def open_store(self) -> EventStore:
        return fencepost.open(next(self.paths))
