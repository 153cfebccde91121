"""One contract, the same signatures everywhere: every engine's, and the awaitable twin's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import fencepost.engines
from fencepost import EventStore, Reading, Records, Subscription
from fencepost.aio import AsyncEventStore, AsyncReading, AsyncRecords, AsyncSubscription
from fencepost.core.engine import PROTOCOLS, Capability
from fencepost.engine import Engine
from fencepost.engines.memory import MemoryEngine
from fencepost.testing.clients import ClientStore
from fencepost.testing.faults import FaultyEngine
from fencepost.testing.stores import BlockingRecords, BlockingStore

VERBS = ["append", "read", "head", "subscribe", "checkpoint", "close"]
METHODS = [name for name, value in vars(Engine).items() if inspect.isfunction(value) and not name.startswith("_")]


def engines() -> Iterator[type]:
    """Every class in the package that is named an engine."""
    for module in pkgutil.iter_modules(fencepost.engines.__path__):
        loaded = importlib.import_module(f"fencepost.engines.{module.name}")
        for name, value in vars(loaded).items():
            if inspect.isclass(value) and name.endswith("Engine") and value is not Engine:
                yield value


ENGINES = sorted({*engines(), FaultyEngine}, key=lambda engine: engine.__name__)


def parameters(call: object) -> list[tuple[str, object, object, str]]:
    """Names, kinds, defaults and types; without the types' modules, which are spelled in several ways."""
    assert callable(call)
    return [
        (one.name, one.kind, one.default, str(one.annotation)) for one in inspect.signature(call).parameters.values()
    ]


def test_the_protocol_is_what_is_compared() -> None:
    assert METHODS == ["commit", "scan", "head", "wait", "interrupt", "record", "records", "close"]
    assert {engine.__name__ for engine in ENGINES} >= {"MemoryEngine", "SqliteEngine"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_an_engine_has_the_signatures_of_the_protocol(engine: type, method: str) -> None:
    assert parameters(getattr(engine, method)) == parameters(getattr(Engine, method))
    own = inspect.signature(getattr(engine, method)).return_annotation
    assert own == inspect.signature(getattr(Engine, method)).return_annotation


OPTIONAL = [
    (capability, protocol, name)
    for capability, protocol in PROTOCOLS.items()
    for name, value in vars(protocol).items()
    if inspect.isfunction(value) and not name.startswith("_")
]


def test_every_capability_has_a_protocol() -> None:
    assert set(PROTOCOLS) == set(Capability) - {Capability.GROUP_COMMIT}, "which only says how `commit` is called"
    assert len(OPTIONAL) == len(PROTOCOLS)


@pytest.mark.parametrize(("capability", "protocol", "method"), OPTIONAL, ids=lambda value: str(value))
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_a_capability_has_one_signature_too(engine: type, capability: Capability, protocol: type, method: str) -> None:
    declared = inspect.getattr_static(engine, "capabilities")
    if engine is FaultyEngine or capability in declared:
        assert parameters(getattr(engine, method)) == parameters(getattr(protocol, method))
        own = inspect.signature(getattr(engine, method)).return_annotation
        assert own == inspect.signature(getattr(protocol, method)).return_annotation
    else:
        assert not hasattr(engine, method), f"{method} is there, and {capability} is not declared"


def test_an_engine_that_lacks_what_it_declares_is_refused() -> None:
    class Boasting(MemoryEngine):
        capabilities = Capability.ASYNC_COMMIT  # type: ignore[assignment,misc]

    with pytest.raises(TypeError, match="Boasting declares ASYNC_COMMIT"):
        EventStore(Boasting())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("store", [AsyncEventStore, BlockingStore, ClientStore], ids=lambda store: store.__name__)
def test_every_store_has_the_same_verbs(store: type, verb: str) -> None:
    assert parameters(getattr(store, verb)) == parameters(getattr(EventStore, verb))


@pytest.mark.parametrize("verb", ["get", "list", "put", "delete"])
@pytest.mark.parametrize("records", [AsyncRecords, BlockingRecords], ids=lambda records: records.__name__)
def test_the_records_of_every_store_have_the_same_verbs(records: type, verb: str) -> None:
    assert parameters(getattr(records, verb)) == parameters(getattr(Records, verb))


def test_readings_and_subscriptions_have_awaitable_twins_with_the_same_members() -> None:
    for one, twin in [(Reading, AsyncReading), (Subscription, AsyncSubscription)]:
        members = {name for name in dir(one) if not name.startswith("_")} - {"page"}
        assert members
        assert members <= set(dir(twin))
