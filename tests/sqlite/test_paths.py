"""The file that a store has opened stays its file: whatever the working directory, links and renames do."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.processes import same_path

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query, StoreCorrupt, StoreUnavailable
from fencepost.engine import engine_of
from fencepost.engines.sqlite import SqliteEngine, backup, ledger, readonly, salvage, verify

ANY = AppendCondition(Query.of(types={"A"}))


@pytest.mark.parametrize("suffix", ["", "?mode=ro"])
def test_a_relative_path_means_the_same_file_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    for name, events in (("one", 1), ("two", 3)):
        (tmp_path / name).mkdir()
        with fencepost.open(tmp_path / name / "store.db") as store:
            store.append([Event("A")] * events)
    monkeypatch.chdir(tmp_path / "one")
    with fencepost.open(f"store.db{suffix}") as store:
        monkeypatch.chdir(tmp_path / "two")
        assert store.head() == 1
        assert len(list(store.read())) == 1
        assert store.checkpoint("c") == 0
        if not suffix:
            with pytest.raises(ConditionFailed):
                store.append([Event("A")], ANY)
            assert store.append([Event("B")]).first == 2
            assert [event.type for event in store.read()] == ["A", "B"]


def test_a_store_behind_a_symbolic_link_is_used_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    real, link = tmp_path / "real.db", tmp_path / "links" / "store.db"
    link.symlink_to(real)
    with fencepost.open(link) as store, fencepost.open(real) as other, fencepost.open(f"{link}?mode=ro") as reader:
        store.append([Event("A")])
        assert other.append([Event("A")]).first == 2
        assert [each.head() for each in (store, other, reader)] == [2, 2, 2]
        assert verify(link).sound
        assert backup(link, tmp_path / "copy.db") == 2
    assert salvage(link, tmp_path / "saved.db").events == 2
    assert sorted(path.name for path in (tmp_path / "links").iterdir()) == ["store.db"]


def test_a_file_with_two_names_is_refused(path: Path) -> None:
    fencepost.open(path).close()
    other = path.with_name("other.db")
    os.link(path, other)
    for name in (path, other, f"{path}?mode=ro"):
        with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\).*remove the other names"):
            fencepost.open(name)
    other.unlink()
    fencepost.open(path).close()


@pytest.mark.parametrize("how", ["renamed", "replaced", "deleted"])
def test_no_append_is_acknowledged_when_the_path_leads_elsewhere(path: Path, how: str) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
        if how == "renamed":
            path.rename(path.with_name("moved.db"))
        elif how == "deleted":
            path.unlink()
        else:
            shutil.copy(path, path.with_name("new.db"))
            path.with_name("new.db").replace(path)
        with pytest.raises(StoreUnavailable, match=r"renamed, replaced or deleted.*nothing was written.*Open"):
            store.append([Event("B")])
        with pytest.raises(StoreUnavailable, match="renamed, replaced or deleted"):
            store.head()


def test_no_append_is_acknowledged_when_its_write_ahead_log_was_deleted(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
        path.with_name(f"{path.name}-wal").unlink()
        with pytest.raises(StoreUnavailable, match="write-ahead log was deleted"):
            store.append([Event("B")])


def test_an_older_copy_that_takes_the_place_of_the_content_is_noticed(path: Path, tmp_path: Path) -> None:
    """As a restore does that writes over the file: the head goes back under a store that is open."""
    with fencepost.open(path) as store:
        store.append([Event("A")])
        backup(path, tmp_path / "old.db")
        store.append([Event("A")] * 5)
    with fencepost.open(f"{path}?mode=ro") as reader:
        assert reader.head() == 6
        path.write_bytes((tmp_path / "old.db").read_bytes())
        with pytest.raises(StoreCorrupt, match=r"ends at 1, but ended at 6.*After a restore, open the store again"):
            reader.head()
    with fencepost.open(path) as store:
        assert store.head() == 1


def test_too_many_open_files_are_said_to_be_too_many(path: Path) -> None:
    fencepost.open(path).close()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(StoreUnavailable, match="too many files open"):
            fencepost.open(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


def test_a_clock_beyond_the_year_9999_stores_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fencepost.open(path) as store:
        monkeypatch.setattr(ledger, "time_ns", lambda: 253_402_300_800 * 10**9)
        with pytest.raises(StoreUnavailable, match="beyond the year 9999; nothing was written"):
            store.append([Event("A")])
        monkeypatch.undo()
        assert store.append([Event("A")]).first == 1


DROPPED = """
import os, sys, threading, fencepost
from fencepost import Event, Query
with fencepost.open(sys.argv[1]) as store:
    store.append([Event("A", tags={"a"})] * 2000)
    os.chmod(os.path.dirname(sys.argv[1]), 0o700)
    os.setgid(65534); os.setuid(65534)
    counts = []
    def read():
        counts.append(len(list(store.read(Query.of(tags={"a"})))))
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert counts == [2000] * 8, counts
    assert store.head() == 2000
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give up privileges")
def test_a_process_that_gives_up_its_privileges_still_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DROPPED, str(tmp_path / "store.db")]
    done = subprocess.run(command, env=same_path(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WRITER = """
import sys, fencepost
with fencepost.open(sys.argv[1]) as store:
    store.append([fencepost.Event("A")])
    print("appended", flush=True)
    sys.stdin.readline()
"""


class TestReadersWithoutLocks:
    """A file at rest is read without locks, until a writer comes."""

    @pytest.fixture(autouse=True)
    def empty(self, path: Path) -> None:
        fencepost.open(path).close()

    def start_writer(self, path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(path)]
        writer = subprocess.Popen(command, env=same_path(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "appended\n"
        return writer

    def test_an_append_that_comes_while_a_reader_waits_to_open_the_file_is_seen(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writers: list[subprocess.Popen[str]] = []

        def overtaken(seconds: float) -> None:
            """The reader waits until the time of the file's last change is certain to be over."""
            time.sleep(seconds)
            if not writers:
                writers.append(self.start_writer(path))

        monkeypatch.setattr(readonly, "pause", overtaken)
        os.utime(path)
        with fencepost.open(f"{path}?mode=ro") as reader:
            assert len(writers) == 1
            assert reader.head() == 1
        writers[0].communicate("\n")

    def test_an_older_state_is_not_taken_for_damage(self, path: Path) -> None:
        with fencepost.open(f"{path}?mode=ro") as reader:
            engine = engine_of(reader)
            assert isinstance(engine, SqliteEngine)
            with engine._readers.lend() as without_locks:
                writer = self.start_writer(path)
                assert reader.head() == 1
                with pytest.raises(StoreUnavailable, match="began to write"):
                    engine._head.read(without_locks)
            writer.communicate("\n")
            assert reader.head() == 1


def test_after_a_restore_a_position_beyond_the_head_is_refused_until_it_is_reset(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "backup.db"
    with fencepost.open(path) as store:
        store.append([Event("A")] * 3)
        backup(path, copy)
        checkpoint = store.append([Event("A")] * 2).last
    path.unlink()
    copy.rename(path)
    with fencepost.open(path) as store:
        with pytest.raises(StoreCorrupt, match=r"after position 5, since the head of the log is 3: the log went back"):
            next(store.subscribe(after=checkpoint, timeout_s=0), None)
        store.append([Event("B")])
        with pytest.raises(StoreCorrupt, match="the log went back"):
            next(store.subscribe(after=checkpoint, timeout_s=0), None)
        assert [event.type for event in store.subscribe(after=3, timeout_s=0)] == ["B"]
