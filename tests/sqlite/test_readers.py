"""Connections for reading: one thread at a time, and no cursor outlives the block that opened it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import apsw
import pytest

import fencepost
from fencepost import Event, EventStore, Query
from fencepost.engines.sqlite.event_rows import HEAD
from fencepost.engines.sqlite.readers import Readers

ROWS = "SELECT position FROM events"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def store(path: str) -> Iterator[EventStore]:
    with fencepost.open(path) as opened:
        opened.append([Event("Made") for _ in range(10)])
        yield opened


@pytest.fixture
def readers(path: str, store: EventStore) -> Iterator[Readers]:
    opened = Readers(path, timeout_s=1.0)
    yield opened
    opened.close()


def test_a_connection_is_lent_again_after_a_block_that_ended_normally(readers: Readers) -> None:
    with readers.lend() as first:
        assert first.execute(HEAD).get == 10
    with readers.lend() as second:
        assert second is first


def test_a_cursor_that_an_error_leaves_unfinished_shows_no_later_reader_an_old_state(
    readers: Readers, store: EventStore
) -> None:
    held: list[apsw.Cursor] = []  # as a traceback can hold one

    def fail() -> None:
        with readers.lend() as connection:
            held.append(connection.execute(ROWS))
            next(held[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    store.append([Event("Made")])
    with readers.lend() as connection:
        assert connection.execute(HEAD).get == 11
    with pytest.raises((apsw.CursorClosedError, apsw.ConnectionClosedError)):
        next(held[0])


def test_two_threads_never_have_the_same_connection(readers: Readers) -> None:
    lent: set[int] = set()
    shared: list[int] = []

    def borrow() -> None:
        for _ in range(200):
            with readers.lend() as connection:
                if id(connection) in lent:
                    shared.append(id(connection))
                lent.add(id(connection))
                assert len(connection.execute(ROWS).fetchall()) == 10
                lent.discard(id(connection))

    threads = [Thread(target=borrow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not shared


def test_threads_that_read_and_fail_and_append_at_once_see_what_one_thread_sees(store: EventStore) -> None:
    """SQLite does not guard these connections: a second user of one would crash the process or mix up rows."""
    store.append([Event("Made", tags={f"odd:{number % 2}"}, data=b"%d" % number) for number in range(10, 3_000)])
    wrong: list[object] = []

    def read(number: int) -> None:
        for turn in range(12):
            wanted = Query.of(tags={f"odd:{turn % 2}"})
            found = [(int(event.data), event.position) for event in store.read(wanted, backwards=number % 2 == 0)]
            wrong.extend(pair for pair in found if pair[0] % 2 != turn % 2 or pair[0] + 1 != pair[1])
            if len(found) != 1_495:
                wrong.append(len(found))
            reading = iter(store.read(limit=50))
            next(reading)  # the rest is never read
            if number == 0:
                store.append([Event("Made", tags={"even"})])

    threads = [Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert store.head() == 3_000 + 12
