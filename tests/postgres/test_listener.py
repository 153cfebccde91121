"""Waiting for the appends of other processes: a notification only wakes the listener; its content is not trusted."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencepost import EventStore
from fencepost.core.address import open_engine
from fencepost.engines.postgres import PostgresEngine, listener
from fencepost.testing.contract.base import events
from fencepost.testing.faults import PATIENCE_S

FILES = 1_100  # more than select.select can watch


@pytest.fixture
def engine(store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresEngine]:
    """An engine that learns of appends only by notifications, beside the store that appends."""
    monkeypatch.setattr(listener, "POLL_S", 3_600)
    engine = open_engine(url)
    store.append(events("First"))
    assert engine.wait(0, PATIENCE_S) == 1
    yield engine
    engine.close()


@pytest.mark.parametrize("payload", ["hello", "", "1000", "-1", "9" * 5_000])
def test_a_foreign_notification_does_no_harm(
    engine: PostgresEngine, store: EventStore, schema: str, connection: psycopg.Connection[Any], payload: str
) -> None:
    connection.execute("SELECT pg_notify('fencepost_' || %s::regclass::oid, %s)", [f'"{schema}".event', payload])
    store.append(events("Second"))
    assert engine.wait(1, PATIENCE_S) == 2


def test_whatever_fails_the_listener_goes_on(
    engine: PostgresEngine, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, failed = engine.listener._is_notified, []

    def fail_once(connection: Any) -> bool:
        if not failed:
            failed.append(connection)
            raise RuntimeError("whatever")
        return told(connection)

    monkeypatch.setattr(engine.listener, "_is_notified", fail_once)
    store.append(events("Second"))
    assert engine.wait(1, PATIENCE_S) == 2
    assert failed
    store.append(events("Third"))
    assert engine.wait(2, PATIENCE_S) == 3


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * FILES, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(FILES)]
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_many_open_files_listens_as_well(
    many_files: None, engine: PostgresEngine, store: EventStore
) -> None:
    store.append(events("Second"))
    assert engine.wait(1, PATIENCE_S) == 2
