"""Tests that every engine must pass, and tools for the tests of services.

    class TestMine(DurableEventStoreContract):
        def open_store(self) -> EventStore:
            '''A new, empty store, another one at each call.'''

        def open_again(self) -> EventStore:
            '''Another handle on the store that was opened last.'''

    class TestMineAwaitable(Awaitable, TestMine): ...

`EventStoreContract` is for a store that ends with its handle. `RecordingContract` and `RestoringContract` are
for engines that record conditions and that restore logs.
`ClientStore` and `check` compare what concurrent clients did and saw with the log. `given` tests a decision
without a store. Only the contract needs pytest and Hypothesis, which are imported when one of its names is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .clients import ClientStore, History, load
from .history import Violation, check
from .scenarios import given

if TYPE_CHECKING:
    from .contract import (
        Awaitable,
        Contract,
        DurableEventStoreContract,
        EventStoreContract,
        RecordingContract,
        RestoringContract,
        SharedRecordingContract,
    )

__all__ = [
    "Awaitable",
    "Contract",
    "DurableEventStoreContract",
    "EventStoreContract",
    "History",
    "ClientStore",
    "RecordingContract",
    "RestoringContract",
    "SharedRecordingContract",
    "Violation",
    "check",
    "given",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if f"{__name__}.contract" not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(f"{__name__}.contract")  # so that its failures say what was compared
    return getattr(import_module(".contract", __name__), name)
