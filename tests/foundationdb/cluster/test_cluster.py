"""A store on a real cluster, under load, while its clients fail and its servers die. Run by `make test-fdb`.

The contract suite runs on the same cluster (tests/foundationdb/test_contract.py). docs/how-to/foundationdb.md says on
which cluster these tests were run. Each test has a namespace of its own, which it clears at the end.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foundationdb.clusters import new_namespace
from tests.foundationdb.workload import random_event, random_query

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query
from fencepost.buckets import matches
from fencepost.engines.foundationdb.binding import connect
from fencepost.engines.foundationdb.engine import FoundationDBEngine
from fencepost.engines.foundationdb.layout import Namespace

from . import administration
from .clients import answers, start, violations

CLUSTER_FILE = os.environ["FENCEPOST_TEST_FDB"]
SECONDS = float(os.environ.get("FENCEPOST_TEST_FDB_SECONDS", "60"))
POSTINGS = 1_000_000
CLIENTS = 10


@pytest.fixture
def namespace() -> Iterator[str]:
    name = new_namespace()
    yield name
    FoundationDBEngine(connect(CLUSTER_FILE), namespace=name).clear()


@pytest.fixture
def address(namespace: str) -> str:
    return f"fdb:{CLUSTER_FILE}?namespace={namespace}"


@pytest.fixture
def store(address: str) -> Iterator[EventStore]:
    with fencepost.open(address) as store:
        yield store


def finish(clients: list[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        client.wait(SECONDS + 300)


def test_verdicts_are_exact(store: EventStore) -> None:
    """A rival commits between the read and the append of a decision; the append is refused iff the rival matches."""
    chance = random.Random(1)
    met = 0
    for _ in range(300):
        decided, rival, query = random_event(chance), random_event(chance), random_query(chance)
        reading = store.read(query)
        list(reading)
        store.append([rival])
        try:
            store.append([decided], AppendCondition(query, after=reading.head))
            refused = False
        except ConditionFailed:
            refused = True
        assert refused is matches(rival, query)
        met += refused
    assert 30 < met < 270


def test_ten_clients_agree_with_the_log(store: EventStore, address: str, tmp_path: Path) -> None:
    finish(start(address, tmp_path, clients=CLIENTS, seconds=SECONDS, buggify=False))
    assert violations(store, tmp_path) == []
    assert answers(tmp_path) > 10 * CLIENTS


def test_clients_whose_requests_fail_at_random_agree_with_the_log(
    store: EventStore, address: str, tmp_path: Path
) -> None:
    finish(start(address, tmp_path, clients=CLIENTS, seconds=SECONDS, buggify=True))
    assert violations(store, tmp_path) == []
    assert answers(tmp_path) > 10 * CLIENTS


def test_clients_agree_with_the_log_while_servers_are_killed(store: EventStore, address: str, tmp_path: Path) -> None:
    clients = start(address, tmp_path, clients=CLIENTS, seconds=SECONDS, buggify=False)
    chance = random.Random(1)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        servers = administration.processes(CLUSTER_FILE)
        administration.kill(CLUSTER_FILE, chance.sample(servers, max(1, len(servers) // 3)))
        time.sleep(chance.uniform(2, 10))
    finish(clients)
    assert violations(store, tmp_path) == []


def test_clients_agree_with_the_log_while_servers_are_cut_off(store: EventStore, address: str, tmp_path: Path) -> None:
    """A suspended server answers nothing, as behind a partition of the network, then dies and is started again."""
    clients = start(address, tmp_path, clients=CLIENTS, seconds=SECONDS, buggify=False)
    chance = random.Random(2)
    began = time.monotonic()
    suspended: set[str] = set()
    while time.monotonic() < began + SECONDS:
        servers = administration.processes(CLUSTER_FILE)
        chosen = chance.sample(servers, max(1, len(servers) // 3))
        administration.suspend(CLUSTER_FILE, 8, chosen)
        suspended.update(chosen)
        time.sleep(chance.uniform(5, 15))
    administration.wait_until_restarted(CLUSTER_FILE, suspended, within_s=time.monotonic() - began)
    finish(clients)
    assert violations(store, tmp_path) == []


def test_clients_that_are_killed_leave_every_append_whole_or_absent(
    store: EventStore, address: str, tmp_path: Path
) -> None:
    clients = start(address, tmp_path, clients=CLIENTS, seconds=3_600, buggify=False)
    chance = random.Random(3)
    for client in clients:
        time.sleep(chance.uniform(0, SECONDS / CLIENTS))
        client.kill()
    finish(clients)
    assert violations(store, tmp_path) == []


def test_a_condition_over_a_million_postings_is_judged(address: str) -> None:
    """A rare type of a frequent tag is found by its own postings; two frequent tags take several transactions."""
    store = fencepost.open(address, transaction_bytes=5_000_000)
    batch = 1_000
    for number in range(POSTINGS // batch):
        store.append([Event("Other", tags={"hot", "even" if n % 2 else "odd"}) for n in range(batch)])
        if number == 0:
            store.append([Event("Rare", tags={"hot"})])
    with pytest.raises(ConditionFailed):
        store.append([Event("Mine")], AppendCondition(Query.of(types={"Rare"}, tags={"hot"})))
    store.append([Event("Mine")], AppendCondition(Query.of(types={"Absent"}, tags={"hot"})))
    store.append([Event("Mine")], AppendCondition(Query.of(tags={"even", "odd"})))
    assert sum(1 for _ in store.read(Query.of(tags={"hot"}))) == POSTINGS + 1
    store.close()


def test_a_backup_restores_the_store(store: EventStore, namespace: str, tmp_path: Path) -> None:
    chance = random.Random(4)
    for _ in range(500):
        store.append([random_event(chance)])
    before = list(store.read())
    keys = Namespace(namespace)
    administration.back_up(CLUSTER_FILE, tmp_path, keys.prefix, keys.prefix + b"\xff")
    FoundationDBEngine(connect(CLUSTER_FILE), namespace=namespace).clear()
    administration.restore(CLUSTER_FILE, tmp_path, keys.prefix, keys.prefix + b"\xff")
    assert list(store.read()) == before
    assert store.append([random_event(chance)]).first > before[-1].position
