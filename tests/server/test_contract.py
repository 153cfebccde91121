"""A store behind a server keeps every promise of a store, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost import EventStore
from fencepost.testing import DurableEventStoreContract, RestoringContract

from .running import RunningServer


class Remote:
    """Binds the suite to a server that each test starts anew."""

    _servers: list[RunningServer]

    @pytest.fixture(autouse=True)
    def _ended(self, tmp_path: Path) -> Iterator[None]:
        self._servers = []
        self._folder = tmp_path
        yield
        for server in self._servers:
            server.stop()

    def address(self) -> str:
        return str(self._folder / f"store{len(self._servers)}.db")

    def open_store(self) -> EventStore:
        self._servers.append(RunningServer(self.address()))
        return fencepost.open(self._servers[-1].url)

    def open_again(self) -> EventStore:
        return fencepost.open(self._servers[-1].url)


class TestRemoteSqlite(Remote, DurableEventStoreContract):
    pass


class TestRemoteThatIsRestored(Remote, RestoringContract):
    pass
