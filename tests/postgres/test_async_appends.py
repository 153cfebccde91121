"""Appends on the event loop, which need no thread, and the cases in which a thread takes over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.postgres.conftest import with_option
from tests.postgres.stepping import hand, wait_for_waiting

import fencepost
import fencepost.aio
from fencepost import ConditionFailed, Event, EventStore, Placed, StoreError, StoreUnavailable
from fencepost.aio import AsyncEventStore
from fencepost.core.verdicts import Append
from fencepost.engine import engine_of, recorded
from fencepost.engines.postgres.committer import LOOP_EVENTS
from fencepost.engines.postgres.statement import Statement
from fencepost.model.limits import MAX_DATA_BYTES
from fencepost.testing.contract.base import events, no_new, positions, tagged
from fencepost.testing.faults import PATIENCE_S

TASKS = 40


def run(url: str, act: Callable[[AsyncEventStore], Awaitable[None]], **options: Any) -> None:
    async def opened() -> None:
        async with fencepost.aio.open(url, **options) as store:
            for count in (1, 2):  # so that both calls are prepared
                await store.append([Event("Prepared")] * count)
            await act(store)

    asyncio.run(opened())


def no_thread(*_: object) -> Any:
    raise AssertionError("this must happen on the event loop")


async def in_thread(act: Callable[..., object], *arguments: object) -> None:
    """Call it in a thread while the loop continues."""
    await asyncio.get_running_loop().run_in_executor(None, act, *arguments)


def test_an_append_takes_no_thread(store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(ThreadPoolExecutor, "submit", no_thread)
            assert await awaitable.append(events("A", "seat:1")) == Placed(4, 4)
            assert await awaitable.append([Event("B"), Event("C")], no_new(tagged("seat:1"), 4)) == Placed(5, 6)
            large = [Event("D", data=bytes(MAX_DATA_BYTES))]  # more than a socket takes at once
            assert await awaitable.append(large) == Placed(7, 7)

    run(url, act)
    assert positions(store.read(tagged("seat:1"))) == [4]


def test_what_would_hold_up_the_loop_is_left_to_a_thread(store: EventStore, url: str) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        engine: Any = engine_of(awaitable)
        many = Append((Event("A"),) * (LOOP_EVENTS + 1))
        in_threads: list[Any] = []

        async def in_thread(call: Any, *args: Any) -> Any:
            in_threads.append(call)
            return call(*args)

        assert list(await engine.commit_async([many], in_thread)) == [Placed(4, 4 + LOOP_EVENTS)]
        assert len(in_threads) == 1

    run(url, act)
    assert store.head() == 4 + LOOP_EVENTS


def test_many_tasks_each_get_their_own_verdict(store: EventStore, url: str) -> None:
    async def take_seat(awaitable: AsyncEventStore, task: int) -> bool:
        seat = f"seat:{task % 10}"
        try:
            placed = await awaitable.append([Event("Taken", data=b"%d" % task, tags={seat})], no_new(tagged(seat)))
        except ConditionFailed:
            return False
        (event,) = [event async for event in awaitable.read(tagged(seat))]
        assert (event.position, event.data) == (placed.last, b"%d" % task)
        return True

    async def act(awaitable: AsyncEventStore) -> None:
        taken = await asyncio.gather(*(take_seat(awaitable, task) for task in range(TASKS)))
        assert sum(taken) == 10

    run(url, act)
    assert store.head() == 13


def test_a_leader_that_is_cancelled_does_not_fail_the_other_appends(store: EventStore, url: str) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        for number in range(TASKS):
            leader = asyncio.ensure_future(awaitable.append(events("Left", f"left:{number}")))
            others = [asyncio.ensure_future(awaitable.append(events("A", f"turn:{number}"))) for _ in range(3)]
            await asyncio.sleep(0.0002 * (number % 5))
            leader.cancel()
            placed = await asyncio.gather(*others)
            assert positions([event async for event in awaitable.read(tagged(f"turn:{number}"))]) == [
                one.last for one in placed
            ]
            with suppress(asyncio.CancelledError):
                await leader

    run(url, act)
    assert positions(store.read()) == list(range(1, store.head() + 1))


def end_those_who_wait(connection: psycopg.Connection[Any]) -> None:
    for backend in wait_for_waiting(connection, 1):
        connection.execute("SELECT pg_terminate_backend(%s)", [backend])


@pytest.mark.parametrize("id", [uuid4(), None], ids=["with an id", "without"])
def test_a_lost_acknowledgement_is_settled_by_the_id(
    store: EventStore, url: str, database_url: str, schema: str, connection: psycopg.Connection[Any], id: UUID | None
) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        with hand(database_url, schema) as other:
            other.append(Append((Event("Before"),)))
            append = asyncio.ensure_future(awaitable.append([Event("A", id=id)]))
            await in_thread(end_those_who_wait, connection)
            if id is None:
                with pytest.raises(StoreUnavailable, match="without event ids"):
                    await append
            else:
                await in_thread(wait_for_waiting, connection, 1)
                other.connection.commit()
                assert await append == Placed(5, 5)

    run(url, act)
    assert store.head() == (4 if id is None else 5)


def test_what_was_stored_and_not_acknowledged_is_the_callers_own(
    store: EventStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated append is found by its id. It was stored once, by its own first attempt."""
    lost: list[bytes] = []
    call_async = Statement.value_async

    async def lose_first_answer(*arguments: Any) -> bytes:
        answer = await call_async(*arguments)
        if not lost:
            lost.append(answer)
            raise psycopg.OperationalError("the connection is lost")
        return answer

    async def act(awaitable: AsyncEventStore) -> None:
        monkeypatch.setattr(Statement, "value_async", lose_first_answer)
        before = await awaitable.head()
        assert await awaitable.append([Event("A", id=uuid4())]) == Placed(before + 1, before + 1)
        assert await awaitable.head() == before + 1

    run(url, act)
    assert lost


def refuse_in_the_commit(connection: psycopg.Connection[Any], schema: str) -> None:
    """Let each transaction that stores an event of the type Refused fail when it commits."""
    connection.execute(
        f"""
        CREATE FUNCTION "{schema}".refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE 'refused in the commit'; END $$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON "{schema}".event DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.type = 'Refused') EXECUTE FUNCTION "{schema}".refuse()
        """.encode()
    )


@pytest.mark.parametrize("count", [1, 2])
def test_what_fails_in_the_commit_is_not_acknowledged(
    store: EventStore, url: str, schema: str, connection: psycopg.Connection[Any], count: int
) -> None:
    refuse_in_the_commit(connection, schema)

    async def act(awaitable: AsyncEventStore) -> None:
        with pytest.raises(StoreError, match="refused in the commit"):
            await awaitable.append([Event("Refused")] * count)
        assert await awaitable.append(events("After")) == Placed(4, 4)

    run(url, act)
    assert store.head() == 4


def hold_up_commits(connection: psycopg.Connection[Any], schema: str) -> None:
    """Let the commit of each event of the type Held wait for the advisory lock 1."""
    connection.execute(
        f"""
        CREATE FUNCTION "{schema}".hold() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON "{schema}".event DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.type = 'Held') EXECUTE FUNCTION "{schema}".hold()
        """.encode()
    )


def end_the_held_one(connection: psycopg.Connection[Any], way: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    statement = f"SELECT pg_{way}_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted"
    while not connection.execute(statement.encode()).fetchall():
        assert time.monotonic() < deadline, "no transaction waits in its commit"
        time.sleep(0.002)


@pytest.mark.parametrize(("way", "told"), [("cancel", "was cancelled"), ("terminate", "read before appending again")])
def test_what_is_ended_in_the_commit_is_not_acknowledged(
    store: EventStore, url: str, schema: str, connection: psycopg.Connection[Any], way: str, told: str
) -> None:
    hold_up_commits(connection, schema)

    async def act(awaitable: AsyncEventStore) -> None:
        connection.execute("SELECT pg_advisory_lock(1)")
        append = asyncio.ensure_future(awaitable.append(events("Held")))
        await in_thread(end_the_held_one, connection, way)
        with pytest.raises(StoreUnavailable, match=told):
            await append
        assert await awaitable.append(events("After")) == Placed(4, 4)

    run(url, act)
    assert store.head() == 4


def test_a_refusal_of_the_server_has_its_name(store: EventStore, url: str, database_url: str, schema: str) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        with hand(database_url, schema) as other:
            other.append(Append((Event("Before"),)))
            with pytest.raises(StoreUnavailable, match="lock"):
                await awaitable.append(events("Late"))
        assert await awaitable.append(events("After")) == Placed(5, 5)

    run(with_option(url, "options", "-clock_timeout%3D200"), act)


def test_a_call_that_is_not_prepared_any_more_is_sent_as_text(store: EventStore, url: str) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        engine: Any = engine_of(awaitable)
        with engine.pool.connection() as connection:
            connection.execute("DEALLOCATE ALL")
        assert await awaitable.append(events("A")) == Placed(4, 4)

    run(url, act, connections=1)


def test_what_is_recorded_with_its_conditions_goes_through_a_thread(url: str) -> None:
    async def act(awaitable: AsyncEventStore) -> None:
        assert await awaitable.append(events("A"), no_new(tagged("seat:1"))) == Placed(4, 4)
        assert [record.last for record in recorded(awaitable.blocking)] == [1, 3, 4]

    with fencepost.open(url, create=True):
        run(url, act, record_conditions=True)
