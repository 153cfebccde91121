"""The contract, kept by the memory engine."""

import fencepost
from fencepost import EventStore
from fencepost.testing import Awaitable, EventStoreContract, RecordingContract, RestoringContract
from fencepost.testing.stores import Store


class TestMemory(EventStoreContract):
    def open_store(self) -> Store:
        return fencepost.open("memory:")


class TestMemoryAwaitable(Awaitable, TestMemory):
    """The same through `fencepost.aio`."""


class TestMemoryThatRecords(RecordingContract):
    def open_recording(self) -> EventStore:
        return fencepost.open("memory:", record_conditions=True)


class TestMemoryThatIsRestored(RestoringContract):
    def open_store(self) -> EventStore:
        return fencepost.open("memory:")
