"""Observers are notified of events in one store or in all stores, and never disturb them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import fencepost
from fencepost import EventStore, InvalidInput
from fencepost.core import observers
from fencepost.core.observers import Observation, has_observers, notify, observe


class Happened(Observation):
    pass


@pytest.fixture(autouse=True)
def no_observers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left observers whose stores still exist."""
    monkeypatch.setattr(observers, "_observers", WeakKeyDictionary())


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


def test_an_observer_of_one_store_is_told_of_that_one(store: EventStore) -> None:
    told: list[Observation] = []
    happened = Happened()
    with fencepost.open("memory:") as other, observe(told.append, of=store):
        notify(store, happened)
        notify(other, Happened())
    assert told == [happened]


def test_an_observer_of_all_is_told_of_each(store: EventStore) -> None:
    told: list[Observation] = []
    with fencepost.open("memory:") as other, observe(told.append):
        notify(store, Happened())
        notify(other, Happened())
    assert len(told) == 2


def test_an_observer_that_was_stopped_is_told_nothing_more(store: EventStore) -> None:
    told: list[Observation] = []
    first, second = observe(told.append, of=store), observe(told.append, of=store)
    notify(store, Happened())
    first.stop()
    first.stop()
    assert has_observers()
    notify(store, Happened())
    second.stop()
    notify(store, Happened())
    assert len(told) == 3
    assert not has_observers()


def test_an_observer_that_fails_is_logged_and_the_append_succeeds(
    store: EventStore, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Observation] = []

    def fail(observation: Observation) -> None:
        raise RuntimeError("no disk left")

    with caplog.at_level(logging.ERROR), observe(fail), observe(told.append):
        notify(store, Happened())
    assert len(told) == 1
    assert "no disk left" in caplog.text


def test_what_is_observed_may_go() -> None:
    store: Any = fencepost.open("memory:")
    observing = observe(print, of=store)
    store.close()
    del store
    gc.collect()
    assert not has_observers()
    observing.stop()


def test_an_observer_can_be_called() -> None:
    with pytest.raises(InvalidInput, match="observer"):
        observe(5)  # type: ignore[arg-type]
