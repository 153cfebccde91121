"""Scans of an SQLite file in a worker: batches bounded by bytes, and locks of other processes.

Each scan runs in a process of its own, as in Spark's workers: two SQLite libraries must not have one file open in one
process.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.sqlite.test_damage import flip

import fencepost
from fencepost import Event
from fencepost.spark.scanning.sqlite import LEFT_OUT

LARGE = 1_000_000

SCAN = """
import hashlib, json, sys
from fencepost.spark.scanning import Selection, sqlite
sqlite.PATIENCE_S = float(sys.argv[2])
found = [
    (batch.num_rows, batch.nbytes, hashlib.sha256(b"".join(batch.column("data").to_pylist())).hexdigest())
    for batch in sqlite.SqliteScan(sys.argv[1]).batches(Selection(0, 10**6), ["position", "data"])
]
print(json.dumps(found))
"""


def scanned(path: Path, patience_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCAN, str(path), str(patience_s)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_large_events_after_many_small_ones_come_in_bounded_batches(tmp_path: Path) -> None:
    """The average event is small, so the number of rows in a batch cannot be chosen by it."""
    path = tmp_path / "log.db"
    with fencepost.open(path) as store:
        store.append([Event("Small", data=b"{}") for _ in range(50_000)])
        for number in range(4):
            store.append([Event("Large", data=bytes([number, index]) * (LARGE // 2)) for index in range(25)])
        store.append([Event("Small", data=b"{}") for _ in range(10)])
    batches = json.loads(scanned(path).stdout)
    assert sum(rows for rows, _, _ in batches) == 50_110
    assert max(size for _, size, _ in batches) < 20_000_000
    assert max(rows for rows, _, _ in batches) > 1_000, "small events still come in large batches"


def test_every_byte_of_mixed_events_is_read(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "log.db"
    with fencepost.open(path) as store:
        store.append([Event("Mixed", data=bytes([n % 251]) * (n * 997 % 150_000)) for n in range(399)])
        store.append([Event("Mixed", data=LEFT_OUT)])  # small, but looks like data that was left out
        whole = [event.data for event in store.read()]
    batches = json.loads(scanned(path).stdout)
    done = 0
    for rows, _, digest in batches:
        assert hashlib.sha256(b"".join(whole[done : done + rows])).hexdigest() == digest
        done += rows
    assert done == 400


@pytest.fixture
def locked(tmp_path: Path) -> tuple[Path, sqlite3.Connection]:
    """A store on which a connection holds a lock that excludes readers."""
    path = tmp_path / "log.db"
    with fencepost.open(path) as store:
        store.append([Event("A", data=b"{}")])
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("SELECT count(*) FROM events").fetchall()
    return path, connection


def test_a_scan_waits_for_a_lock(locked: tuple[Path, sqlite3.Connection]) -> None:
    path, connection = locked
    timer = threading.Timer(5.0, connection.close)
    timer.start()
    done = scanned(path)
    timer.join()
    assert json.loads(done.stdout)[0][0] == 1, done.stderr


def test_a_lock_that_lasts_is_named_as_the_problem(locked: tuple[Path, sqlite3.Connection]) -> None:
    path, connection = locked
    done = scanned(path, patience_s=0.1)
    connection.close()
    assert "another process has held a lock on the file for more than 0.1 s; try again" in done.stderr
    assert "every machine" not in done.stderr


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with fencepost.open(path) as store:
        store.append([Event("Small", data=b"content %d " % number) for number in range(200)])
    page = flip(path, b"content 150 ", 3)
    assert f"StoreCorrupt: {path}: page {page} does not agree with the checksum" in scanned(path).stderr


BOTH_LIBRARIES = """
import sys
import fencepost
from adbc_driver_sqlite import dbapi
from fencepost.spark.scanning import sqlite

def by_driver():
    sqlite._check_pages(dbapi)
    with dbapi.connect(f"file:{sys.argv[1]}?mode=ro") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM events")
        return cursor.fetchall()[0][0]

def by_apsw():
    with fencepost.open(sys.argv[1]) as store:
        store.append([fencepost.Event("T")])
        return store.head()

for call in sys.argv[2:]:
    print(globals()[call](), end=" ")
"""


@pytest.mark.parametrize("calls", [("by_driver", "by_apsw", "by_driver"), ("by_apsw", "by_driver", "by_apsw")])
def test_the_driver_and_the_store_check_pages_in_one_process(tmp_path: Path, calls: tuple[str, ...]) -> None:
    """Each has an SQLite of its own. They shared the extension's variables, and the second one crashed."""
    path = str(tmp_path / "store.db")
    with fencepost.open(path) as store:
        store.append([Event("T")])
    ran = subprocess.run([sys.executable, "-c", BOTH_LIBRARIES, path, *calls], capture_output=True, text=True)
    assert ran.stdout.split() == (["1", "2", "2"] if calls[0] == "by_driver" else ["2", "2", "3"]), ran.stderr
