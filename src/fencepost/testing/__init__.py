"""What a store must do, as tests that any engine can be put under; and tools to test with.

    class TestMine(DurableEventStoreContract):
        def open_store(self) -> EventStore:
            '''A new, empty store, another one at each call.'''

        def open_again(self) -> EventStore:
            '''Another handle on the store that was opened last.'''

    class TestMineAwaitable(Awaitable, TestMine): ...

`EventStoreContract` is for a store that ends with its handle; `RecordingContract` and `RestoringContract` are
for engines that keep conditions and take logs over.
`Recorder` and `check` hold what concurrent clients did and saw against the log; `given` tests a decision
without any store. Only the contract and the machine need pytest and Hypothesis, and import them when they
are asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .history import Violation, check
from .recorder import History, Recorder, load
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
    from .machine import StoreMachine

__all__ = [
    "Awaitable",
    "Contract",
    "DurableEventStoreContract",
    "EventStoreContract",
    "History",
    "Recorder",
    "RecordingContract",
    "RestoringContract",
    "SharedRecordingContract",
    "StoreMachine",
    "Violation",
    "check",
    "given",
    "load",
]

_LATER = {
    "Awaitable": ".contract",
    "Contract": ".contract",
    "DurableEventStoreContract": ".contract",
    "EventStoreContract": ".contract",
    "RecordingContract": ".contract",
    "RestoringContract": ".contract",
    "SharedRecordingContract": ".contract",
    "StoreMachine": ".machine",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _LATER[name] == ".contract" and f"{__name__}.contract" not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(f"{__name__}.contract")  # so that its failures say what was compared
    return getattr(import_module(_LATER[name], __name__), name)
