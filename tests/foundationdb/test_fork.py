"""FoundationDB's network thread is not copied by a fork: a child must be refused, or it would wait for ever."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tests.support.simulated_fdb import FDBError, SimulatedCluster

import fencepost
from fencepost import Event
from fencepost.engine import engine_of
from fencepost.engines.foundationdb import binding


def in_a_child(call: Callable[[], object]) -> str:
    """The result of the call in a forked child: its value or its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(call())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as answer:
        return answer.read().decode()


@pytest.fixture(autouse=True)
def simulated_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `fdb`, as far as it is used here, on a simulated cluster."""
    cluster = SimulatedCluster()
    module = SimpleNamespace(
        is_api_version_selected=lambda: True,
        get_api_version=lambda: binding.API_VERSION,
        open=lambda cluster_file: cluster.open(),
        FDBError=FDBError,
    )
    monkeypatch.setattr(binding, "importlib", SimpleNamespace(import_module=lambda name: module))
    monkeypatch.setattr(binding, "ranges_of", lambda fdb: binding.simple_range)
    monkeypatch.setattr(binding, "write_directly", binding.simple_write)
    monkeypatch.setattr(binding, "_network", None)


def test_a_child_of_a_process_that_has_opened_a_store_is_told_to_fork_before() -> None:
    with fencepost.open("fdb:") as store:
        store.append([Event("A")])
        said = in_a_child(lambda: fencepost.open("fdb:"))
    assert said.startswith("StoreClosed")
    assert "network thread" in said
    assert "fork before the first store is opened" in said
    # Closing does not help: the network thread cannot be started twice, in whichever process.
    assert in_a_child(lambda: fencepost.open("fdb:")).startswith("StoreClosed")


def test_a_child_that_was_forked_before_opens_the_store() -> None:
    def append() -> int:
        with fencepost.open("fdb:") as store:
            return len([store.append([Event("A")])])

    assert in_a_child(append) == "1"


def test_what_was_opened_before_the_fork_is_refused_in_the_child() -> None:
    with fencepost.open("fdb:") as store:
        store.append([Event("A")] * 600)  # more than the first page, which is read at once
        reading = store.read()
        engine = engine_of(store)
        for use in (store.head, lambda: list(reading), engine.head, lambda: engine.record("records/name")):
            assert in_a_child(use).startswith("StoreClosed")
        assert in_a_child(store.close) == "None"
        assert store.head() > 0
