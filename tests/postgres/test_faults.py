"""Each fault raises an error that names it; no acknowledged append is lost or stored twice; the store recovers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.postgres.conftest import with_option
from tests.postgres.proxy import Proxy
from tests.postgres.stepping import hand, wait_for_waiting
from tests.support.postgres import PostgresServer, Standby

import fencepost
from fencepost import (
    AppendCondition,
    AppendRefused,
    Event,
    EventStore,
    Placed,
    Put,
    Query,
    Record,
    StoreError,
    StoreUnavailable,
)
from fencepost.core.address import open_engine
from fencepost.core.verdicts import Append
from fencepost.engines.postgres.connection_pool import ConnectionPool
from fencepost.engines.postgres.error_mapping import Lost
from fencepost.engines.postgres.statement import Statement
from fencepost.testing import check
from fencepost.testing.clients import ClientStore
from fencepost.testing.contract.base import Running, events, no_new, positions, tagged, take, types
from fencepost.testing.faults import PATIENCE_S
from fencepost.testing.stores import engine_beneath

CLIENTS = 6
CRASHES = 3


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server to be crashed, with everything synced to the disk."""
    with PostgresServer(tcp=True, wal_level="replica", max_wal_senders=4) as server:
        yield server


@pytest.fixture
def fragile(server: PostgresServer, schema: str) -> str:
    """The address of a new store on that server."""
    url = with_option(server.url(), "schema", schema)
    fencepost.open(url, create=True).close()
    return url


def with_id(type: str, *tags: str) -> Event:
    return Event(type, tags=tags, id=uuid4())


def terminate(connection: psycopg.Connection[Any], pid: int) -> None:
    connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def test_a_connection_killed_in_mid_commit_is_settled_by_the_ids(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    event = with_id("Reserved", "seat:1")
    with hand(database_url, schema) as other:
        other.append(Append((Event("Before"),)))
        append = Running(partial(store.append, [event], no_new(tagged("seat:1"))))
        terminate(connection, wait_for_waiting(connection, 1)[0])
        wait_for_waiting(connection, 1)
        other.connection.commit()
    assert append.result() == Placed(2, 2)
    assert types(store.read()) == ["Before", "Reserved"]


def test_a_connection_killed_in_mid_commit_is_reported_where_there_are_no_ids(
    store: EventStore, database_url: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    with hand(database_url, schema) as other:
        other.append(Append((Event("Before"),)))
        append = Running(partial(store.append, events("Reserved", "seat:1")))
        terminate(connection, wait_for_waiting(connection, 1)[0])
        with pytest.raises(StoreUnavailable, match="without event ids the store cannot find out which"):
            append.result()
        other.connection.commit()
    assert types(store.read()) == ["Before"]
    assert store.append(events("After")) == Placed(2, 2)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def through(proxy: Proxy, server: PostgresServer, url: str) -> str:
    return url.replace(f":{server.port}/", f":{proxy.port}/")


def test_16_a_lost_acknowledgement_is_settled_by_the_ids(proxy: Proxy, server: PostgresServer, fragile: str) -> None:
    """The commit succeeds and its answer is lost twice. The third attempt finds it, and does not conflict with it."""
    batch = [with_id("Reserved", "seat:1"), with_id("Paid", "seat:1")]
    with fencepost.open(through(proxy, server, fragile)) as store:
        store.append(events("Before"))
        proxy.lose_answers(2)
        assert store.append(batch, no_new(tagged("seat:1"))) == Placed(2, 3)
        assert positions(store.read(tagged("seat:1"))) == [2, 3]
        assert store.append(batch, no_new(tagged("seat:1"))) == Placed(2, 3, already=True)


def test_16_a_lost_acknowledgement_of_a_large_append_is_settled_by_the_ids(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    batch = [with_id("Loaded") for _ in range(9_000)]
    with fencepost.open(through(proxy, server, fragile)) as store:
        store.append(events("Before"))
        proxy.lose_answers(1)
        assert store.append(batch) == Placed(2, 9_001)
        assert len(list(store.read())) == 9_001


def test_16_without_ids_a_lost_acknowledgement_says_so_and_nothing_is_stored_twice(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(through(proxy, server, fragile)) as store:
        store.append(events("Before"))
        proxy.lose_answers(1)
        with pytest.raises(StoreUnavailable, match="read before appending again"):
            store.append(events("Once"))
        assert types(store.read()) == ["Before", "Once"]


def test_16_a_lost_acknowledgement_of_a_record_says_so_and_the_record_shows_what_happened(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(through(proxy, server, fragile)) as store:
        first = store.records.put("lease", b"process 1", expected=0)
        proxy.lose_answers(1)
        with pytest.raises(StoreUnavailable, match="read before appending again"):
            store.records.put("lease", b"process 2", expected=first.revision)
        assert store.records.get("lease") == Record("lease", b"process 2", first.revision + 1)


def test_16_with_ids_a_lost_acknowledgement_changes_records_once(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(through(proxy, server, fragile)) as store:
        store.append(events("Before"), records=[Put("other", b"", 0)])  # also prepares the statement
        proxy.lose_answers(1)
        placed = store.append([with_id("Counted")], records=[Put("count", b"1", 0)])
        assert placed == Placed(2, 2, already=True)
        assert store.records.get("count") == Record("count", b"1", 1)


def test_16_what_was_stored_before_is_told_so_after_a_lost_acknowledgement(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    """A new process sends an append again that an earlier process has stored."""
    event = with_id("Reserved", "seat:1")
    with fencepost.open(fragile) as earlier:
        earlier.append([event])
    with fencepost.open(through(proxy, server, fragile)) as store:
        proxy.lose_answers(1)
        assert store.append([event]) == Placed(1, 1, already=True)


def test_16_of_two_with_the_same_id_one_is_the_first_after_a_lost_acknowledgement(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    """A caller that uses an id as a lock must not be told twice that it was free."""
    engine = open_engine(through(proxy, server, fragile))
    engine.commit([Append((Event("Before"),)), Append((Event("Before"),))])
    append = Append((with_id("Taken"),))
    proxy.lose_answers(1)
    assert list(engine.commit([append, append])) == [Placed(3, 3), Placed(3, 3, already=True)]
    engine.close()


def test_16_what_unless_finds_after_a_lost_acknowledgement_is_ones_own_or_anothers(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(through(proxy, server, fragile)) as store, fencepost.open(fragile) as other:
        store.append(events("Before"))
        proxy.lose_answers(1)
        assert store.append([with_id("Reserved", "seat:1")], unless=tagged("seat:1")) == Placed(2, 2)
        other.append([with_id("Reserved", "seat:2")])
        proxy.lose_answers(1)
        assert store.append([with_id("Late", "seat:2")], unless=tagged("seat:2")) == Placed(3, 3, already=True)


def test_16_what_cannot_be_settled_is_not_told_to_be_missing(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    """The commit succeeds, its answer is lost, and then the server cannot be reached any more."""
    event = with_id("Reserved", "seat:1")
    with fencepost.open(through(proxy, server, fragile), patience_s=0.3) as store:
        store.append(events("Before"))
        proxy.lose_answers(1_000)
        with pytest.raises(
            StoreUnavailable, match=r"stored completely or not at all: append again with the same event ids"
        ):
            store.append([event])
        proxy.lose_answers(0)
        assert store.append([event]) == Placed(2, 2, already=True)


def test_a_reading_goes_on_over_lost_connections_without_gap_or_repeat(
    proxy: Proxy, server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(through(proxy, server, fragile)) as store:
        store.append(events("A", count=3_000))
        reading = store.read()
        found = take(reading, 100)
        proxy.lose_answers(3)
        found += reading
        assert positions(found) == list(range(1, 3_001))


def test_a_subscription_goes_on_when_all_its_connections_are_killed(
    store: EventStore, url: str, connection: psycopg.Connection[Any]
) -> None:
    subscription = store.subscribe(timeout_s=PATIENCE_S)
    with fencepost.open(url) as other:
        other.append(events("A"))
        found = take(subscription, 1)
        for number in range(3):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'fencepost' AND pid <> pg_backend_pid()"
            )
            for _ in range(5):
                other.append([with_id(f"Type{number}")])
            found += take(subscription, 5)
    assert positions(found) == list(range(1, 17))
    subscription.stop()


def test_a_statement_timeout_is_unavailability_and_nothing_is_stored(database_url: str, url: str, schema: str) -> None:
    impatient = with_option(url, "options", "-cstatement_timeout%3D200")
    with hand(database_url, schema) as other, fencepost.open(impatient) as store:
        other.append(Append((Event("Before"),)))
        with pytest.raises(StoreUnavailable, match="statement_timeout"):
            store.append(events("Late"))
        other.connection.commit()
        assert types(store.read()) == ["Before"]
        assert store.append(events("After")) == Placed(2, 2)


def test_a_lock_timeout_is_unavailability(database_url: str, url: str, schema: str) -> None:
    impatient = with_option(url, "options", "-clock_timeout%3D200")
    with hand(database_url, schema) as other, fencepost.open(impatient) as store:
        other.append(Append((Event("Before"),)))
        with pytest.raises(StoreUnavailable, match="lock"):
            store.append(events("Late"))


def test_17_a_storage_error_in_the_check_is_no_refusal(
    url: str, store: EventStore, connection: Any, schema: str
) -> None:
    store.append(events("B"))  # in an empty store there is nothing to check
    connection.execute(f'ALTER VIEW "{schema}".tag_posting RENAME TO away')
    with pytest.raises(StoreError) as failed:
        store.append(events("A", "t"), no_new(tagged("t")))
    assert not isinstance(failed.value, AppendRefused)
    connection.execute(f'ALTER VIEW "{schema}".away RENAME TO tag_posting')
    assert store.append(events("A", "t"), no_new(tagged("t"))) == Placed(2, 2)


def test_a_connection_that_was_left_in_mid_query_is_not_lent_again(database_url: str) -> None:
    """As after a cancelled task: the next query would receive the answer to this one."""
    connections = ConnectionPool(database_url, limit=1, patience_s=PATIENCE_S)
    left = connections.take()
    left.pgconn.send_query(b"SELECT pg_sleep(1)")
    connections.give_back(left)
    with connections.borrow() as session:
        assert session is not left
    assert left.connection.closed
    connections.close()


def test_an_answer_that_the_protocol_does_not_allow_is_a_lost_connection(database_url: str) -> None:
    """The outcome of the call is unknown, and the connection is not lent again."""
    connections = ConnectionPool(database_url, limit=1, patience_s=1)
    call = Statement("SET search_path = pg_catalog")  # which has no row to return
    with pytest.raises(Lost, match="COMMAND_OK"), connections.borrow() as session:
        call.value(session, [])
    assert session.connection.closed
    with pytest.raises(Lost), connections.borrow() as session:
        raise psycopg.InternalError("received 2 results from command 'COMMIT'")
    assert session.connection.closed
    connections.close()


def test_what_psycopg_refuses_to_send_is_no_lost_connection(database_url: str) -> None:
    connections = ConnectionPool(database_url, limit=1, patience_s=1)
    with pytest.raises(StoreError) as refused, connections.connection() as connection:
        connection.execute("SELECT %s", [object()])
    assert not isinstance(refused.value, Lost)
    connections.close()


def test_a_full_pool_is_unavailability(url: str) -> None:
    with fencepost.open(url, connections=1, patience_s=0.2) as store:
        engine: Any = engine_beneath(store)
        with engine.pool.borrow(), pytest.raises(StoreUnavailable, match="all 1 connections"):
            store.head()
        assert store.append(events("Late")) == Placed(1, 1)


def test_a_server_that_is_not_there_is_unavailable_at_once_when_opened() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        fencepost.open("postgresql://127.0.0.1:1/nowhere")


def test_a_server_that_went_away_is_unavailable_and_used_again_when_it_is_back(
    server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(fragile, patience_s=0.3) as store:
        store.append(events("Before"))
        server.stop()
        for verb in (store.head, store.read, partial(store.append, events("Lost")), partial(store.checkpoint, "c")):
            with pytest.raises(StoreUnavailable):
                verb()
        server.start()
        assert store.append(events("After")) == Placed(2, 2)
        assert types(store.read()) == ["Before", "After"]


def test_an_append_after_a_restart_is_not_sent_into_a_connection_that_the_server_has_closed(
    server: PostgresServer, fragile: str
) -> None:
    with fencepost.open(fragile) as store:
        store.append(events("Before"))
        server.stop()
        server.start()
        assert store.append(events("After")) == Placed(2, 2)


def test_a_server_that_is_behind_what_was_read_before_is_not_believed(store: EventStore) -> None:
    store.append(events("A", "t", count=3))
    engine = engine_beneath(store)
    for query in (Query.all(), tagged("t"), Query.of(types={"A"})):
        with pytest.raises(StoreUnavailable, match="lags behind"):
            list(engine.scan(query, after=0, up_to=4))


def test_28_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(schema: str) -> None:
    """Clients decide, append and read on while the server is killed with -9 and started again, several times."""
    with PostgresServer() as server:
        url = with_option(server.url(), "schema", schema)
        with fencepost.open(url, create=True, patience_s=PATIENCE_S) as store:
            recorders = [ClientStore(store, f"client{number}") for number in range(CLIENTS)]
            done = threading.Event()
            running = [Running(partial(keep_deciding, recorder, done)) for recorder in recorders]
            for crash in range(CRASHES):
                wait_for_head(store, 100 * (crash + 1))
                server.kill()
                server.start()
            wait_for_head(store, 100 * (CRASHES + 1))
            done.set()
            acknowledged = sum(client.result() for client in running)
            log = list(store.read())
            assert check([recorder.history for recorder in recorders], log) == []
            assert len(log) >= acknowledged > 100 * CRASHES


def keep_deciding(store: ClientStore, done: threading.Event) -> int:
    """Count up counters, with ids and without; return how many appends were acknowledged."""
    chance = random.Random(store.client)
    acknowledged = 0
    while not done.is_set():
        counter = tagged(f"counter:{chance.randrange(4)}")
        with suppress(AppendRefused, StoreUnavailable):
            reading = store.read(counter)
            number = len(list(reading))
            event = Event(
                "Counted", data=b"%d" % number, tags=counter.items[0].tags, id=uuid4() if number % 2 else None
            )
            store.append([event], AppendCondition(counter, after=reading.head))
            acknowledged += 1
    return acknowledged


def wait_for_head(store: EventStore, head: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while store.head() < head:
        assert time.monotonic() < deadline, "no client appends"
        time.sleep(0.005)


def test_a_subscriber_survives_restarts_of_the_server_without_gap_or_repeat(schema: str) -> None:
    with PostgresServer() as server:
        url = with_option(server.url(), "schema", schema)
        with fencepost.open(url, create=True, patience_s=PATIENCE_S) as store:
            subscription = store.subscribe(Query.all(), timeout_s=PATIENCE_S)
            found = []
            for _ in range(3):
                for _ in range(10):
                    store.append([with_id("A")])
                found += take(subscription, 5)
                server.stop()
                server.start()
            found += take(subscription, 15)
            assert positions(found) == list(range(1, 31))
            subscription.stop()


def test_a_read_only_standby_reads_and_follows_and_refuses_appends(server: PostgresServer, schema: str) -> None:
    url = with_option(server.url(), "schema", schema)
    with fencepost.open(url, create=True) as primary, Standby(server) as standby:
        primary.append(events("Before"))
        standby_url = with_option(standby.url(), "schema", schema)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                replica = fencepost.open(standby_url)
                break
            except StoreError:
                assert time.monotonic() < deadline, "the standby does not follow"
                time.sleep(0.05)
        with replica:
            subscription = replica.subscribe(timeout_s=PATIENCE_S)
            assert types(take(subscription, 1)) == ["Before"]
            with pytest.raises(StoreUnavailable, match="read-only standby"):
                replica.append(events("Refused"))
            primary.append(events("After"))
            assert types(take(subscription, 1)) == ["After"]
            assert types(replica.read()) == ["Before", "After"]
            subscription.stop()
