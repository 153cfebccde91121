"""The contract, kept by the memory engine."""

import fencepost
from fencepost.testing import Awaitable, EventStoreContract
from fencepost.testing.stores import Store


class TestMemory(EventStoreContract):
    def open_store(self) -> Store:
        return fencepost.open("memory:")


class TestMemoryAwaitable(Awaitable, TestMemory):
    """The same through `fencepost.aio`."""
