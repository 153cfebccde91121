"""Ctrl-C at any moment of the main thread, as in a notebook whose user continues with the same store.

Nothing acknowledged afterwards is lost, no thread waits for ever, and what is in memory is what is in the file.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.small import shrink

import fencepost
from fencepost import Event, EventStore, Query, SequencedEvent
from fencepost.engine import engine_of, restore
from fencepost.engines.sqlite import SqliteEngine, connections, verify
from fencepost.engines.sqlite.connections import run
from fencepost.engines.sqlite.tail import Tail

A = Query.of(tags={"a"})
EVENT = Event("T", tags={"a"})

APPENDS: dict[str, Callable[[EventStore], object]] = {
    "the first, which looks for something to merge": lambda store: store.append([EVENT]),
    "with a checkpoint": lambda store: store.append([EVENT], checkpoint=("c", 1)),
    "of many events": lambda store: store.append([EVENT] * 100),
    "a restore": lambda store: restore(store, [SequencedEvent(1, "T", "[]", b"", 0)]),
}


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Within the block an interrupt is raised, unless the block has ended before."""
    armed = True

    def interrupt(*_: Any) -> None:
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def another_writes(path: Path, seconds: float) -> Iterator[None]:
    """Write as another process would, in a transaction that stays open for `seconds`."""
    holds = threading.Event()

    def hold() -> None:
        connection = apsw.Connection(os.fspath(path))
        connection.execute("BEGIN IMMEDIATE")
        holds.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    yield
    thread.join()


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_what_is_acknowledged_after_one_that_waited_for_the_lock_is_stored(
    tmp_path: Path, append: Callable[[EventStore], object]
) -> None:
    path = tmp_path / "log.db"
    with fencepost.open(path) as store:
        with another_writes(path, 0.6), pytest.raises(KeyboardInterrupt), interrupted_after(0.2):
            append(store)
        placed = store.append([EVENT])
        with fencepost.open(path, patience_s=0.5) as other:
            assert other.head() == placed.last
            other.append([EVENT])


def test_a_connection_that_was_left_in_a_transaction_reads_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch.setattr)
    run = connections.run
    by_type = Query.of(types={"T"})

    def interrupting(connection: apsw.Connection, sql: str, bindings: Any = None) -> list[Any]:
        rows = run(connection, sql, bindings)
        if sql == "BEGIN":
            run(connection, "SELECT max(position) FROM events")
            raise KeyboardInterrupt
        return rows

    with fencepost.open(tmp_path / "log.db") as store:
        for _ in range(20):
            store.append([EVENT])
        with monkeypatch.context() as patch:
            patch.setattr(connections, "run", interrupting)
            patch.setattr(connections, "roll_back", lambda connection: None)
            with pytest.raises(KeyboardInterrupt):
                list(store.read(by_type))
        store.append([EVENT])
        assert len(list(store.read(by_type))) == 21


def test_an_interrupt_while_the_tail_is_cut_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.db"

    def interrupted(tail: Tail, head: int) -> None:
        tail._added.pop()
        tail._stored.pop()
        raise KeyboardInterrupt

    with fencepost.open(path) as one, fencepost.open(path) as other:
        one.append([EVENT])
        other.append([EVENT])
        with monkeypatch.context() as patch:
            patch.setattr(Tail, "cut", interrupted)
            with pytest.raises(KeyboardInterrupt):
                one.append([EVENT])  # overtaken, so it is taken back
        one.append([EVENT])
        assert [event.position for event in one.read(A)] == [event.position for event in other.read()] == [1, 2, 3]
    assert verify(path).problems == []


def test_an_interrupt_before_what_was_added_is_known_to_be_committed(tmp_path: Path) -> None:
    with fencepost.open(tmp_path / "log.db") as store:
        store.append([EVENT])
        engine = engine_of(store)
        assert isinstance(engine, SqliteEngine)
        engine._tail.view.tail.add("T", frozenset({"a"}), None)
        for head in (2, 3):
            assert store.append([EVENT]).last == head
        assert [event.position for event in store.read(A)] == [1, 2, 3]


def test_what_an_interrupt_left_uncommitted_is_taken_back_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with fencepost.open(path) as store, fencepost.open(path) as other:
        store.append([EVENT])
        engine = engine_of(store)
        assert isinstance(engine, SqliteEngine)
        for statement in (
            "BEGIN IMMEDIATE",
            "INSERT INTO events SELECT position + 1, 'Lost', tags, data, recorded_at, id, metadata FROM events",
        ):
            run(engine._writable().writer, statement)
        assert store.append([EVENT]).last == 2
        assert [event.type for event in store.read(A)] == [event.type for event in other.read(A)] == ["T", "T"]


@pytest.mark.parametrize("rivals", [0, 1], ids=["alone", "beside another handle"])
@pytest.mark.parametrize("verb", ["read", "append"])
def test_callers_after_an_interrupt_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, rivals: int
) -> None:
    shrink(monkeypatch.setattr)
    chance = random.Random(7)
    path = tmp_path / "log.db"
    interrupts = 0
    with fencepost.open(path) as store, fencepost.open(path) as other:
        store.append([EVENT] * 5)

        def work() -> None:
            for _ in range(100):
                if rivals:
                    other.append([Event("T", tags={"b"})])
                if verb == "append":
                    store.append([EVENT])
                else:
                    list(store.read(A, after=2))

        for _ in range(80):
            try:
                with interrupted_after(chance.uniform(20e-6, 2e-3)):
                    work()
            except KeyboardInterrupt:
                interrupts += 1
            answered = threading.Event()

            def come_after(answered: threading.Event = answered) -> None:
                before = len(list(store.read(A)))
                store.append([EVENT])
                assert len(list(store.read(A))) == before + 1
                answered.set()

            threading.Thread(target=come_after, daemon=True).start()
            assert answered.wait(20), f"no answer after {interrupts} interrupts"
        assert interrupts > 40
        with fencepost.open(path) as fresh:
            assert list(store.read(A)) == list(fresh.read(A))
            assert [event.position for event in fresh.read()] == list(range(1, fresh.head() + 1))
    assert verify(path).problems == []
