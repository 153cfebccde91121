"""`FaultyEngine` injects faults into every way in which a store calls an engine.

A capability that is not listed in `CALLS` fails a test here. A method that `FaultyEngine` does not have, or has with
another signature, fails a test in test_signatures.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost import Event, EventStore, Query, SequencedEvent, StoreUnavailable
from fencepost.aio import AsyncEventStore
from fencepost.core.address import open_engine
from fencepost.core.engine import PROTOCOLS
from fencepost.core.verdicts import Append
from fencepost.engine import Capability, Engine, append_each, recorded, restore
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.contract.base import events
from fencepost.testing.faults import FaultyEngine, raising

FAULT = raising(StoreUnavailable("injected"))
RESTORED = SequencedEvent(1, "T", "[]", b"", 0)


class LoopEngine(MemoryEngine):
    """A memory engine that also commits on an event loop."""

    capabilities = MemoryEngine.capabilities | Capability.ASYNC_COMMIT  # type: ignore[misc]

    async def commit_async(self, appends: Any, in_thread: Any) -> Any:
        return self.commit(appends)


class CountedEngine(FaultyEngine):
    """Notes which methods the store calls."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.called: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if inspect.ismethod(value):
            self.called.append(name)
        return value


def blocking(act: Callable[[EventStore], object]) -> Callable[[Engine], Awaitable[None]]:
    async def call(engine: Engine) -> None:
        with EventStore(engine) as store:
            act(store)

    return call


def awaited(act: Callable[[AsyncEventStore], Awaitable[object]]) -> Callable[[Engine], Awaitable[None]]:
    async def call(engine: Engine) -> None:
        async with AsyncEventStore(engine) as store:
            await act(store)

    return call


# For each capability: the engine's method, and calls of both stores that must go through it.
CALLS: dict[Capability, tuple[str, list[Callable[[Engine], Awaitable[None]]]]] = {
    Capability.GROUP_COMMIT: (
        "commit",
        [
            blocking(lambda store: store.append(events("A"))),
            blocking(lambda store: append_each(store, [Append(tuple(events("A")))])),
            awaited(lambda store: store.append(events("A"))),
        ],
    ),
    Capability.BEGIN: ("begin", [blocking(lambda store: store.read())]),
    Capability.ASYNC_READ: (
        "begin_async",
        [awaited(lambda store: store.read(Query.of(tags={"a"})).__aiter__().__anext__())],
    ),
    Capability.ASYNC_COMMIT: ("commit_async", [awaited(lambda store: store.append(events("A")))]),
    Capability.RECORDED_APPENDS: ("recorded", [blocking(lambda store: list(recorded(store)))]),
    Capability.RESTORE: ("restore", [blocking(lambda store: restore(store, [RESTORED]))]),
}
CASES = [
    pytest.param(capability, method, call, id=f"{capability.name}-{number}")
    for capability, (method, calls) in CALLS.items()
    for number, call in enumerate(calls)
]


def engine_with(capability: Capability, path: Path) -> CountedEngine:
    inner = LoopEngine() if capability is Capability.ASYNC_COMMIT else open_engine(path, record_conditions=True)
    assert capability in inner.capabilities
    return CountedEngine(inner)


def test_every_capability_is_covered() -> None:
    assert set(CALLS) == set(Capability) == {*PROTOCOLS, Capability.GROUP_COMMIT}


def test_every_optional_method_is_covered() -> None:
    optional = {name for protocol in PROTOCOLS.values() for name, _ in inspect.getmembers(protocol, inspect.isfunction)}
    assert {name for name in optional if not name.startswith("_")} == {method for method, _ in CALLS.values()} - {
        "commit"
    }


@pytest.mark.parametrize(("capability", "method", "call"), CASES)
async def test_a_fault_reaches_the_caller(capability: Capability, method: str, call: Any, tmp_path: Path) -> None:
    engine = engine_with(capability, tmp_path / "log.db")
    engine.before = engine.before_scan = FAULT
    with pytest.raises(StoreUnavailable, match="injected"):
        await call(engine)
    assert method in engine.called


@pytest.mark.parametrize(
    ("capability", "method", "call"),
    [case for case in CASES if case.values[1] in ("commit", "commit_async", "restore")],
)
async def test_a_fault_after_storing_loses_only_the_acknowledgement(
    capability: Capability, method: str, call: Any, tmp_path: Path
) -> None:
    engine = engine_with(capability, tmp_path / "log.db")
    stored: list[int] = []

    def fail() -> None:
        stored.append(engine.engine.head())
        FAULT()

    engine.after = fail
    with pytest.raises(StoreUnavailable, match="injected"):
        await call(engine)
    assert stored == [1]


@pytest.mark.parametrize(("capability", "method", "call"), CASES)
async def test_without_a_fault_the_call_succeeds(
    capability: Capability, method: str, call: Any, tmp_path: Path
) -> None:
    engine = engine_with(capability, tmp_path / "log.db")
    if capability is Capability.ASYNC_READ:
        engine.engine.commit([Append((Event("A", tags={"a"}),))])
    await call(engine)
    assert method in engine.called
