"""The write-ahead log stays short, even under steady readers."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import apsw
import pytest
from tests.sqlite import rotating
from tests.support.processes import Child

import fencepost
from fencepost import Event, EventStore
from fencepost.engine import engine_of
from fencepost.engines.sqlite import SqliteEngine, sizes, verify
from fencepost.engines.sqlite.connections import connect, run

CHECKPOINT_PAGES, RESTART_PAGES = 50, 200
FRAME_BYTES = 4_096 + 24
APPEND_PAGES = 60  # the most pages that one append writes, including maintenance
APPENDS = 150


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "CHECKPOINT_PAGES", CHECKPOINT_PAGES)
    monkeypatch.setattr(sizes, "RESTART_PAGES", RESTART_PAGES)
    monkeypatch.setattr(sizes, "LOG_BYTES", RESTART_PAGES * FRAME_BYTES)
    # No reader takes that long, even on a busy machine, so the bound below does not depend on timing.
    monkeypatch.setattr(sizes, "RESTART_PATIENCE_S", 60.0)


def append(store: EventStore) -> float:
    """Append about 25 pages; return the seconds that it took."""
    began = perf_counter()
    store.append([Event("A", data=bytes(5_000), tags={"a"})] * 12)
    return perf_counter() - began


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def sqlite_of(store: EventStore) -> SqliteEngine:
    engine = engine_of(store)
    assert isinstance(engine, SqliteEngine)
    return engine


def test_steady_readers_in_threads_and_processes_do_not_make_it_grow(path: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with fencepost.open(path) as store:
        append(store)
        threads = [
            threading.Thread(target=rotating.rotate, args=(str(path), lambda: not stop.is_set())) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        with Child(rotating.__file__, tmp_path / "reports", path, tmp_path / "stop") as child:
            try:
                child.wait_for(1)
                longest, slowest = 0, 0.0
                for _ in range(APPENDS):
                    slowest = max(slowest, append(store))
                    longest = max(longest, log_bytes(path))
            finally:
                stop.set()
                (tmp_path / "stop").touch()
                for thread in threads:
                    thread.join()
            child.result()
        print(f"the longest log had {longest:,} bytes, the slowest append took {slowest * 1e3:.0f} ms")
    assert longest <= (RESTART_PAGES + 2 * APPEND_PAGES) * FRAME_BYTES
    assert verify(path).problems == []


def test_after_a_long_reading_it_is_cut_to_its_usual_length(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "RESTART_PATIENCE_S", 0.001)
    with fencepost.open(path) as store:
        append(store)
        reader = connect(str(path), timeout_s=1, cache_kib=256)
        run(reader, "BEGIN")
        run(reader, "SELECT max(position) FROM events")
        while log_bytes(path) < 5 * RESTART_PAGES * FRAME_BYTES:
            append(store)
        reader.close(force=True)
        for _ in range(5 * RESTART_PAGES // 25):
            append(store)
        assert log_bytes(path) <= (RESTART_PAGES + 2 * APPEND_PAGES) * FRAME_BYTES


def test_waiting_for_readers_does_not_shorten_the_patience_with_other_writers(path: Path) -> None:
    with fencepost.open(path, patience_s=7.0) as store:
        for _ in range(20):
            append(store)
        committer = sqlite_of(store)._writable()
        committer.log.restart()
        assert run(committer.writer, "PRAGMA busy_timeout") == [(7_000,)]


def test_a_log_that_cannot_be_restarted_is_tried_again_when_it_has_grown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fencepost.open(path) as store:
        log, tried = sqlite_of(store)._writable().log, list[int]()

        def busy() -> None:
            tried.append(log.pages)
            raise apsw.BusyError("a read takes long")

        monkeypatch.setattr(log, "restart", busy)
        reader = connect(str(path), timeout_s=1, cache_kib=256)
        run(reader, "BEGIN")
        run(reader, "SELECT max(position) FROM events")
        for _ in range(80):
            append(store)
        reader.close(force=True)
    assert len(tried) > 2
    for last, then in pairwise(tried):
        assert then >= last + max(CHECKPOINT_PAGES, last // 4)
