"""A consumer handles every matching event, in order; effects in a database happen exactly once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import Event, EventStore, SequencedEvent
from fencepost.consumers import Consumer, Runner, TargetRefused, consumer, run, run_async, start, worker
from fencepost.consumers.sessions import Session
from fencepost.core.observers import observe
from fencepost.decisions import DefinitionError, encode

from .places import Added, Other, Place, add, eventually, positions


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def effects_into(place: Place, **options: Any) -> Consumer:
    mark = "?" if place.kind == "sqlite" else "%s"

    @consumer("effects", into=place.into, lease_s=2, **options)
    def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
        tx.execute(f"INSERT INTO effect (position) VALUES ({mark})", (stored.position,))

    return effects


def test_the_past_is_handled_and_then_each_new_event(place: Place, store: EventStore) -> None:
    add(store, 30)
    with start(store, effects_into(place)):
        eventually(lambda: len(place.effects()) == 30)
        for _ in range(10):
            add(store)
        eventually(lambda: len(place.effects()) == 40)
    assert place.effects() == positions(store)


def test_it_goes_on_where_it_ended(place: Place, store: EventStore) -> None:
    for count in (10, 20, 30):
        add(store, 10)
        with start(store, effects_into(place)):
            eventually(lambda count=count: len(place.effects()) >= count)
    assert place.effects() == positions(store)


def test_more_events_than_any_buffer_holds_arrive_once_and_in_order(place: Place, store: EventStore) -> None:
    with start(store, effects_into(place, batch=100)):
        for _ in range(10):
            add(store, 500)
        eventually(lambda: len(place.effects()) >= 5_000)
    assert place.effects() == positions(store)


def test_the_cursor_moves_over_events_that_do_not_match(place: Place, store: EventStore) -> None:
    add(store)
    for _ in range(11):
        last = store.append([encode(Other("x")) for _ in range(1_000)]).last
    with start(store, effects_into(place)):
        eventually(lambda: place.effects() and place.checkpoint("effects") >= last)
        added = add(store)
        eventually(lambda: place.checkpoint("effects") >= added)
    assert place.effects() == [1, added]


def test_an_event_that_commits_beside_a_long_open_transaction_is_not_skipped(place: Place, store: EventStore) -> None:
    with start(store, effects_into(place)):
        add(store, 5)
        connection = place.connect()
        if place.kind == "postgres":
            connection.autocommit = False
            connection.execute("SELECT txid_current()")  # older than every append below
        else:
            connection.execute("BEGIN")
        try:
            for _ in range(20):
                add(store)
            eventually(lambda: len(place.effects()) >= 25)
        finally:
            connection.rollback()
            connection.close()
    assert place.effects() == positions(store)


def test_several_consumers_run_side_by_side(place: Place, store: EventStore) -> None:
    seen: list[int] = []

    @consumer("seen", lease_s=2)
    def see(event: Added | Other, stored: SequencedEvent) -> None:
        seen.append(stored.position)

    with start(store, effects_into(place), see):
        add(store, 10)
        store.append([encode(Other("x"))])
        eventually(lambda: len(place.effects()) == 10 and len(seen) == 11)


class TestHandlers:
    def test_a_handler_is_found_by_the_annotation(self) -> None:
        seen: list[str] = []

        @consumer("seen")
        def first(event: Added) -> None:
            seen.append(f"added {event.amount}")

        @first.on
        def _(event: Other) -> None:
            seen.append(f"other {event.key}")

        with fencepost.open("memory:") as store, start(store, first):
            store.append([encode(Added("a", 3)), encode(Other("b")), Event("Unknown")])
            eventually(lambda: len(seen) == 2)
        assert seen == ["added 3", "other b"]

    def test_a_handler_of_every_event_does_not_get_the_records_about_consumers(self) -> None:
        seen: list[str] = []

        @consumer("all")
        def every(event: SequencedEvent) -> None:
            seen.append(event.type)

        with fencepost.open("memory:") as store, start(store, every):
            store.append([Event("A"), Event("B")])
            eventually(lambda: len(seen) >= 2)
        assert seen == ["A", "B"]

    def test_a_handler_without_an_annotation_is_refused(self) -> None:
        with pytest.raises(DefinitionError, match="annotate 'event'"):

            @consumer("x")
            def handler(event) -> None: ...  # type: ignore[no-untyped-def]

    def test_two_handlers_of_one_type_are_refused(self) -> None:
        @consumer("x")
        def handler(event: Added) -> None: ...

        with pytest.raises(DefinitionError, match="2 handlers for the stored type 'Added'"):
            handler.on(_second)

    async def test_an_async_handler_runs_on_the_event_loop(self) -> None:
        threads: set[int] = set()
        done = asyncio.Event()

        @consumer("async")
        async def handler(event: Added) -> None:
            await asyncio.sleep(0)
            threads.add(threading.get_ident())
            done.set()

        async with fencepost.aio.open("memory:") as store:
            running = asyncio.create_task(run_async(store, handler))
            await store.append([encode(Added("a", 1))])
            await asyncio.wait_for(done.wait(), 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert threads == {threading.get_ident()}

    def test_an_async_handler_runs_without_an_event_loop(self) -> None:
        seen: list[int] = []

        @consumer("async")
        async def handler(event: Added) -> None:
            await asyncio.sleep(0)
            seen.append(event.amount)

        with fencepost.open("memory:") as store, start(store, handler):
            add(store, 3)
            eventually(lambda: len(seen) == 3)


def _second(event: Added) -> None: ...


class TestTargets:
    def test_the_file_of_the_store_itself_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / "log.db")
        link = tmp_path / "link.db"
        link.symlink_to(path)
        with fencepost.open(path) as store:
            for into in (path, str(link), Path(path)):
                with pytest.raises(TargetRefused, match="cannot write into the file of the store"):
                    start(store, Consumer("x", into=into))
            assert add(store) == 1

    def test_a_connection_to_the_file_of_the_store_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / "log.db")
        made: list[sqlite3.Connection] = []

        def connect() -> sqlite3.Connection:
            made.append(sqlite3.connect(path, check_same_thread=False))
            return made[-1]

        @consumer("x", into=connect)
        def handler(event: Added) -> None: ...

        with fencepost.open(path) as store, pytest.raises(TargetRefused, match="the file of the store"):
            run(store, handler)

    def test_a_connection_that_refuses_other_threads_is_explained(self, tmp_path: Path) -> None:
        connection = sqlite3.connect(tmp_path / "views.db")

        @consumer("x", into=connection)
        def handler(event: Added) -> None: ...

        with fencepost.open("memory:") as store, pytest.raises(TargetRefused, match="check_same_thread=False"):
            run(store, handler)
        connection.close()

    def test_a_connection_of_the_program_is_used_and_left_open(self, place: Place, store: EventStore) -> None:
        connection = place.connect()
        if place.kind == "sqlite":
            connection.close()
            connection = sqlite3.connect(place.into, check_same_thread=False)
        mark = "?" if place.kind == "sqlite" else "%s"

        @consumer("effects", into=connection)
        def handler(event: Added, tx: Any, stored: SequencedEvent) -> None:
            tx.execute(f"INSERT INTO effect (position) VALUES ({mark})", (stored.position,))

        add(store, 3)
        with start(store, handler):
            eventually(lambda: len(place.effects()) == 3)
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (3,)
        connection.close()

    @pytest.mark.parametrize("place", ["sqlite"], indirect=True)
    def test_an_engine_of_sqlalchemy_is_used(self, place: Place, store: EventStore) -> None:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        engine = sqlalchemy.create_engine(f"sqlite:///{place.into}")

        @consumer("effects", into=engine)
        def handler(event: Added, tx: Any, stored: SequencedEvent) -> None:
            tx.execute(sqlalchemy.text("INSERT INTO effect (position) VALUES (:at)"), {"at": stored.position})

        add(store, 3)
        with start(store, handler):
            eventually(lambda: len(place.effects()) == 3)
        assert place.checkpoint("effects") >= 3
        engine.dispose()

    @pytest.mark.parametrize("place", ["sqlite"], indirect=True)  # psycopg refuses it itself
    def test_a_handler_that_commits_is_refused(self, place: Place, store: EventStore) -> None:
        @consumer("effects", into=place.into)
        def handler(event: Added, tx: sqlite3.Connection) -> None:
            tx.commit()

        add(store)
        with pytest.raises(TargetRefused, match="a handler committed or rolled back"):
            run(store, handler)

    def test_a_target_of_another_store_is_refused(self, tmp_path: Path) -> None:
        into = str(tmp_path / "views.db")

        @consumer("x", into=into)
        def handler(event: Added) -> None: ...

        with fencepost.open(tmp_path / "long.db") as store:
            last = add(store, 1_000)
            with start(store, handler) as runner:
                eventually(lambda: runner.partition_runners[0].position >= last)
        with fencepost.open("memory:") as store, pytest.raises(TargetRefused, match="belongs to another store"):
            run(store, handler)

    def test_records_can_be_kept_in_another_store(self, place: Place, store: EventStore) -> None:
        with fencepost.open("memory:") as control, start(store, effects_into(place), control=control):
            add(store, 10)
            eventually(lambda: len(place.effects()) == 10)
            assert control.head() > 0
        assert store.head() == 10


def test_observers_are_told_of_batches(place: Place, store: EventStore) -> None:
    told: list[str] = []
    with observe(lambda each: told.append(type(each).__name__), of=store), start(store, effects_into(place)):
        add(store, 10)
        eventually(lambda: "BatchHandled" in told)
    assert "LeadChanged" in told


def test_an_idle_consumer_says_how_far_it_has_come_over_other_events(
    place: Place, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read model that waits for its predecessor to be published depends on it."""
    monkeypatch.setattr(worker, "IDLE_S", 0.2)
    reached: list[int] = []
    monkeypatch.setattr(Session, "caught_up", lambda self, position: reached.append(position))
    first = add(store)
    with start(store, effects_into(place)):
        eventually(lambda: max(reached, default=0) >= first)
        other = store.append([encode(Other("a"))]).last
        eventually(lambda: max(reached) >= other)
        add(store)
        eventually(lambda: len(place.effects()) == 2)
    assert place.effects() == positions(store)


def test_a_store_that_has_lost_handled_events_is_refused_with_what_to_do(place: Place, tmp_path: Path) -> None:
    """As after the restore of an older backup: going on, the consumer would skip events at old positions."""
    with place.open() as store:
        add(store)
        with start(store, effects_into(place)):
            eventually(lambda: len(place.effects()) == 1)
            add(store, 99)
            eventually(lambda: len(place.effects()) == 100)
    with fencepost.open(tmp_path / "older.db") as older:
        add(older, 50)
        with start(older, effects_into(place)) as runner:
            runner.wait()
            with pytest.raises(TargetRefused, match=r"up to position 10\d, but the head of the store is 5\d"):
                runner.check()
    assert len(place.effects()) == 100


def test_a_relative_target_is_the_one_of_the_folder_in_which_the_consumer_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        with closing(sqlite3.connect(folder / "target.db")) as target:
            target.execute("CREATE TABLE effect (position INTEGER)")
    monkeypatch.chdir(first)
    with fencepost.open("memory:") as store:
        add(store)

        @consumer("effects", into="target.db", lease_s=2)
        def effects(event: Added, tx: Any, stored: SequencedEvent) -> None:
            tx.execute("INSERT INTO effect (position) VALUES (?)", (stored.position,))

        with Runner(store, [effects]) as runner:
            monkeypatch.chdir(second)
            runner._start()  # opens the target
            eventually(lambda: rows_of(first / "target.db"))
    assert rows_of(second / "target.db") == []


def rows_of(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=30)) as target:
        return target.execute("SELECT * FROM effect").fetchall()
