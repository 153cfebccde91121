"""The contract suite over a socket once more: for a store in memory, and through `fencepost.aio`."""

from __future__ import annotations

from fencepost.testing import Awaitable
from fencepost.testing.contract import EventStoreContract

from ..test_contract import Remote


class TestRemoteMemory(Remote, EventStoreContract):
    def address(self) -> str:
        return "memory:"


class TestRemoteAwaitable(Awaitable, TestRemoteMemory):
    """The same through `fencepost.aio`."""
