from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .running import RunningServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(str(tmp_path / "wallet.db"), heartbeat_s=0.2) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client
