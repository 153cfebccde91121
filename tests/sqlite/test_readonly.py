"""A store that can be read is read, whether or not it can be written; reading it changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from tests.crash.workload import NAME, attempts, open_on
from tests.sqlite import unprivileged
from tests.sqlite.outside import outside
from tests.support.disk import Disk, failing, no_fault
from tests.support.processes import Child
from tests.support.thorough import times

import fencepost
from fencepost import (
    Event,
    InvalidInput,
    Query,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from fencepost.engine import restore
from fencepost.engines.sqlite import SqliteEngine, backup, engine, verify
from fencepost.engines.sqlite.readonly import ImmutableConnection

A = Query.of(tags={"a"})


def events(count: int) -> list[Event]:
    return [Event("Happened", data=b"%d" % number, tags={"a"}) for number in range(count)]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter, unlike `tmp_path`: the children do not run as root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        try:
            yield Path(folder)
        finally:
            os.chmod(folder, 0o755)


@contextmanager
def not_writable(folder: Path) -> Iterator[None]:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    yield
    folder.chmod(0o755)


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[Callable[[str, Path], list[str]]]:
    """Runs a process that may not write to the store and has its own folder for copies; returns its report."""
    with tempfile.TemporaryDirectory() as own:

        def run(what: str, path: Path) -> list[str]:
            with Child(unprivileged.__file__, tmp_path / "reports", what, path, own) as child:
                child.result()
                return child.lines()

        yield run


def check_used(said: list[str], head: int) -> None:
    """What `unprivileged.use` reports of a store that can be read, and not written."""
    heads, append, problems, copied, commands = said[:4], said[4], said[5], said[6], said[7:]
    assert heads == [str(head)] * 4
    assert append.startswith("StoreReadOnly")
    assert "let this user write to the file and its folder" in append
    assert (problems, copied) == ("[]", str(head))
    assert [line.split()[:2] for line in commands] == [
        [name, "0"] for name in ("head", "read", "tail", "stats", "verify")
    ]


# A file that this user may not write.


def test_a_store_at_rest_can_be_read_without_permission_to_write(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    with fencepost.open(public / NAME) as store:
        store.append(events(10))
    with not_writable(public):
        check_used(as_nobody("use", public / NAME), 10)
    assert [file.name for file in public.iterdir()] == [NAME]


def test_a_store_that_another_process_has_open_can_be_read_without_permission_to_write(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    with fencepost.open(public / NAME) as store:
        store.append(events(10))
        with not_writable(public):
            check_used(as_nobody("use", public / NAME), 10)
        store.append(events(1))


def test_a_store_whose_process_was_killed_can_be_read_without_permission_to_write(
    public: Path, tmp_path: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    with fencepost.open(tmp_path / NAME) as store:
        store.append(events(10))
        for file in tmp_path.glob(f"{NAME}*"):
            shutil.copy(file, public)
    with not_writable(public):
        check_used(as_nobody("use", public / NAME), 10)


def test_a_user_who_may_write_the_folder_but_not_the_file_leaves_nothing_there(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    """A log that belongs to the reading user would lock out the writing user."""
    with fencepost.open(public / NAME) as store:
        store.append(events(10))
    (public / NAME).chmod(0o444)
    public.chmod(0o777)
    check_used(as_nobody("use", public / NAME), 10)
    assert [file.name for file in public.iterdir()] == [NAME]


MOUNTED = """
import sys
from pathlib import Path
from tests.sqlite import unprivileged

unprivileged.use(sys.argv[1], Path(sys.argv[2]), lambda line: print(line, file=sys.__stdout__, flush=True))
"""


@pytest.mark.parametrize("log", [False, True], ids=["at rest", "with a log"])
def test_a_store_on_a_read_only_mount_can_be_used(public: Path, tmp_path: Path, log: bool) -> None:
    """A namespace of its own, where the folder is mounted read-only: even root cannot write there."""
    with fencepost.open(tmp_path / NAME) as store:
        store.append(events(10))
        if log:
            for file in tmp_path.glob(f"{NAME}*"):
                shutil.copy(file, public)
    if not log:
        shutil.copy(tmp_path / NAME, public)
    own = tmp_path / "own"
    own.mkdir()
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    namespace = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    result = subprocess.run(
        [*namespace, "sh", "-c", mount, "sh", public, sys.executable, "-c", MOUNTED, public / NAME, own],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    check_used(result.stdout.splitlines(), 10)


def test_another_programs_file_that_may_not_be_written_is_refused_for_what_it_is(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    (public / NAME).write_text("a text")
    with not_writable(public):
        (said,) = as_nobody("look", public / NAME)
    assert said.startswith("FormatUnsupported")


def test_a_log_that_cannot_be_read_is_not_passed_over(
    public: Path, tmp_path: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    """Its events are acknowledged, so opening the file without it would lose them."""
    with fencepost.open(tmp_path / NAME) as store:
        store.append(events(10))
        for name in (NAME, f"{NAME}-wal"):
            shutil.copy(tmp_path / name, public)
    with not_writable(public):
        (said,) = as_nobody("look", public / NAME)
    assert said.startswith("StoreUnavailable")
    assert "copy both files to a folder of your own" in said


def test_an_archived_backup_can_be_read_without_permission_to_write(
    public: Path, tmp_path: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    with fencepost.open(tmp_path / NAME) as store:
        store.append(events(10))
    backup(tmp_path / NAME, public / NAME)
    with not_writable(public):
        check_used(as_nobody("use", public / NAME), 10)


def test_a_user_who_may_not_read_the_file_is_told_its_owner(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    fencepost.open(public / NAME).close()
    (public / NAME).chmod(0o000)
    (said,) = as_nobody("look", public / NAME)
    assert f"may not read the file, which belongs to user {os.getuid()}" in said


def test_commands_on_a_file_of_another_user_say_who_owns_it(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    fencepost.open(public / NAME).close()
    (public / NAME).chmod(0o600)
    said = as_nobody("look_by_command", public / NAME)
    assert len(said) == 3
    for line in said:
        assert line.split()[0] not in ("0", "70")  # 70 is a defect of Fencepost
        assert f"may not read the file, which belongs to user {os.getuid()}" in line


def test_a_user_who_may_not_enter_the_folder_is_told_so(
    public: Path, as_nobody: Callable[[str, Path], list[str]]
) -> None:
    (public / "closed").mkdir()
    fencepost.open(public / "closed" / NAME).close()
    (public / "closed").chmod(0o000)
    (said,) = as_nobody("look", public / "closed" / NAME)
    (public / "closed").chmod(0o755)
    assert "may not enter one of the folders" in said


def test_a_user_who_may_not_create_a_file_is_told_so(public: Path, as_nobody: Callable[[str, Path], list[str]]) -> None:
    with not_writable(public):
        (said,) = as_nobody("look", public / NAME)
    assert f"may not create files in the folder {os.path.realpath(public)}" in said


# A store that is opened for reading only.


@pytest.fixture
def stored(path: Path) -> Path:
    with fencepost.open(path) as store:
        store.append(events(10), checkpoint=("consumer", 3))
    return path


def test_reading_only_touches_nothing(stored: Path) -> None:
    before = stored.read_bytes(), stored.stat()
    for address, option in ((f"{stored}?mode=ro", False), (f"sqlite:{stored}?mode=ro", False), (stored, True)):
        with fencepost.open(address, read_only=option) as store:
            assert store.head() == 10
            assert [event.data for event in store.read(A, after=8)] == [b"8", b"9"]
            assert len(list(store.read(A, backwards=True))) == 10
            assert store.checkpoint("consumer") == 3
            assert [file.name for file in stored.parent.iterdir()] == [stored.name]
    assert verify(f"{stored}?mode=ro").problems == []
    backup(f"{stored}?mode=ro", f"{stored}.copy")
    assert (stored.read_bytes(), stored.stat().st_mtime_ns) == (before[0], before[1].st_mtime_ns)


def test_appends_and_restores_are_refused_with_what_to_do(stored: Path) -> None:
    with fencepost.open(f"{stored}?mode=ro", record_conditions=True) as store:
        for write in (
            lambda: store.append(events(1)),
            lambda: store.append([], checkpoint=("consumer", 9)),
            lambda: restore(store, list(store.read(limit=1))),
        ):
            with pytest.raises(StoreReadOnly, match=r"to append, open it without \?mode=ro"):
                write()
        assert store.head() == 10


def test_only_an_address_can_say_read_only_and_only_so(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the only mode is ro"):
        fencepost.open(f"{stored}?mode=rw")
    with pytest.raises(StoreUnavailable, match="no such store"):
        fencepost.open(f"{tmp_path}/missing.db?mode=ro")
    with pytest.raises(InvalidInput, match="a store in memory is 'memory:'"):
        fencepost.open(":memory:")
    assert [file.name for file in tmp_path.iterdir()] == [stored.name]


def test_a_question_mark_may_be_part_of_a_name(tmp_path: Path) -> None:
    for name in ("why?.db", "?mode.db"):
        with fencepost.open(f"{tmp_path}/{name}") as store:
            store.append(events(1))
    with fencepost.open(tmp_path / "store.db?mode=ro") as store:  # a path is always a path
        store.append(events(1))
    with fencepost.open(f"{tmp_path}/store.db?mode=ro") as store:  # and so is the name of a file that is there
        assert store.append(events(1)).first == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["?mode.db", "store.db?mode=ro", "why?.db"]


@pytest.mark.usefixtures("small")
def test_what_others_write_is_seen_whenever_they_come_and_go(path: Path) -> None:
    with fencepost.open(path) as writer:
        writer.append(events(10))
    with fencepost.open(f"{path}?mode=ro") as store:
        for head in range(10, 200, 10):
            assert store.head() == head
            assert [event.position for event in store.read(A)] == list(range(1, head + 1))
            with fencepost.open(path) as writer:
                for event in events(10):
                    writer.append([event])
                assert len(list(store.read(A))) == head + 10


def test_a_subscription_follows_writers_that_come_later(stored: Path) -> None:
    with fencepost.open(f"{stored}?mode=ro") as store, store.subscribe(A, after=10) as subscription:
        for number in range(3):
            with fencepost.open(stored) as writer:
                writer.append(events(1))
            assert next(subscription).position == 11 + number


def test_a_file_that_changes_under_a_reader_without_locks_gives_an_error_and_no_events(stored: Path) -> None:
    sqlite = SqliteEngine(str(stored), read_only=True)

    def read_while_the_file_changes() -> None:
        with sqlite._readers.lend() as connection:
            assert isinstance(connection, ImmutableConnection)
            with fencepost.open(stored) as writer:
                writer.append(events(1))

    with pytest.raises(StoreUnavailable, match="read again"):
        read_while_the_file_changes()
    assert sqlite.head() == 11
    with fencepost.open(stored) as writer, sqlite._readers.lend() as connection:
        writer.append(events(1))  # which is in the log, so far, and not in the file
        assert connection.execute("SELECT max(position) FROM events").get == 11
    sqlite.close()


def test_readers_and_writers_that_come_and_go_never_meet_a_torn_file(path: Path) -> None:
    """Another thread opens, appends and closes faster than the resolution of file times."""
    with fencepost.open(path) as writer:
        writer.append(events(100))
    stop, problems = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            with fencepost.open(f"{path}?mode=ro") as store:
                while not stop.is_set():
                    try:
                        read = [event.position for event in store.read()]
                    except StoreUnavailable:
                        continue
                    assert read == list(range(1, len(read) + 1))
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(times(40, thorough=200)):
        with fencepost.open(path) as writer:
            writer.append(events(20))
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


# A disk that is full.


def test_on_a_full_disk_a_store_that_was_killed_is_read_and_appends_work_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    """There is a log to be copied into the file, and no room for it."""
    script = attempts(6)
    (tmp_path / "before").mkdir()
    (tmp_path / "killed").mkdir()
    with open_on(Disk(), tmp_path / "before") as store:
        for attempt in script[:5]:
            attempt.made(store)
        stored = list(store.read())
        for name in (NAME, f"{NAME}-wal"):
            shutil.copy(tmp_path / "before" / name, tmp_path / "killed" / name)
    disk = Disk()
    disk.fault = failing("write", apsw.SQLITE_FULL, times=None)
    with open_on(disk, tmp_path / "killed") as store:
        assert list(store.read()) == stored
        assert list(store.read(Query.of(tags={"all"}))) == stored
        assert isinstance(script[5].outcome(store), StoreError)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            script[5].made(store)
        disk.fault = no_fault
        assert script[5].made(store).first == len(stored) + 1
    assert verify(tmp_path / "killed" / NAME).problems == []


def test_no_room_for_the_index_of_the_log_is_named_as_the_cause(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says "disk I/O error" where it cannot make its shared memory."""
    error = apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)

    def no_room(*given: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(engine, "prepare_file", no_room)
    with fencepost.open(stored) as store:
        assert len(list(store.read(A))) == 10
        with pytest.raises(StoreUnavailable, match=r"store\.db-shm, cannot be created; nothing was written"):
            store.append(events(1))
        monkeypatch.undo()
        assert store.append(events(1)).first == 11


# Files that are not stores, or not yet.


@pytest.mark.parametrize("emptied", ["no byte", "no table"])
@pytest.mark.parametrize("how", ["create=False", "read_only=True", "verify", "backup"])
def test_an_empty_file_is_refused_as_empty_and_left_as_it_is(path: Path, emptied: str, how: str) -> None:
    path.touch()
    if emptied == "no table":  # a process that is killed while it creates a store leaves this
        outside(path, "PRAGMA journal_mode = WAL")
    content = path.read_bytes()
    calls: dict[str, Callable[[], object]] = {
        "create=False": lambda: fencepost.open(path, create=False),
        "read_only=True": lambda: fencepost.open(path, read_only=True),
        "verify": lambda: verify(path),
        "backup": lambda: backup(path, f"{path}.copy"),
    }
    with pytest.raises(StoreError, match="the file is empty, so it is not a store; make it one with `fencepost init"):
        calls[how]()
    assert path.read_bytes() == content
    assert not Path(f"{path}.copy").exists()
    with fencepost.open(path) as store:
        assert store.append(events(1)).first == 1


def test_an_emptied_file_is_not_initialised_while_its_log_has_events(path: Path) -> None:
    """SQLite would delete the log."""
    with fencepost.open(path) as store:
        store.append(events(10))
        log = Path(f"{path}-wal").read_bytes()
    path.write_bytes(b"")
    Path(f"{path}-wal").write_bytes(log)
    for create in (True, False):
        with pytest.raises(StoreCorrupt, match="its write-ahead log is not"):
            fencepost.open(path, create=create)
    assert Path(f"{path}-wal").read_bytes() == log


def test_a_folder_a_pipe_and_a_path_through_a_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a text")
    os.mkfifo(tmp_path / "pipe")
    refused = {
        tmp_path: "this is a folder, and a store is a file",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "file" / "store.db": "a part of this path is a file",
        tmp_path / "missing" / "store.db": f"the folder {tmp_path}/missing does not exist; make it first",
        tmp_path / ("long" * 100): "File name too long",
    }
    for path, reason in refused.items():
        with pytest.raises(StoreUnavailable, match=reason):
            fencepost.open(path)
    with pytest.raises(InvalidInput, match="is not a path"):
        fencepost.open("a\0b")


# Backups.


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_backup_keeps_the_mode_of_the_original(stored: Path, mode: int) -> None:
    stored.chmod(mode)
    backup(stored, f"{stored}.copy")
    assert stat.S_IMODE(Path(f"{stored}.copy").stat().st_mode) == mode


@pytest.mark.parametrize("points_to", ["a file", "nothing"])
def test_a_backup_does_not_follow_a_link_that_was_planted(stored: Path, tmp_path: Path, points_to: str) -> None:
    victim = tmp_path / "victim"
    if points_to == "a file":
        victim.write_text("precious")
    link = tmp_path / "copy.db"
    link.symlink_to(victim)
    (tmp_path / "copy.db.partial").symlink_to(victim)
    with pytest.raises(InvalidInput, match="exists already"):
        backup(stored, link)
    link.unlink()
    backup(stored, link)
    assert not link.is_symlink()
    assert victim.exists() == (points_to == "a file")
    assert points_to == "nothing" or victim.read_text() == "precious"


def test_a_backup_does_not_replace_a_file_that_appears_while_it_is_made(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def plant(descriptor: int) -> None:
        (tmp_path / "copy.db").write_text("precious")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", plant)
    with pytest.raises(InvalidInput, match="exists already"):
        backup(stored, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", stored.name]


def test_a_backup_that_fails_leaves_nothing_behind(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be created"):
        backup(stored, tmp_path / "missing" / "copy.db")
    stored.write_bytes(b"a text")
    with pytest.raises(StoreError):
        backup(stored, tmp_path / "copy.db")
    assert [file.name for file in tmp_path.iterdir()] == [stored.name]
