"""Which files are opened, which are refused, and what the refusal says."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from uuid import UUID

import apsw
import pytest
from tests.sqlite import starter
from tests.sqlite.outside import foreign, outside
from tests.support.processes import Child
from tests.support.thorough import times

import fencepost
from fencepost import Event, EventStore, FormatUnsupported, StoreUnavailable
from fencepost.engines.sqlite import backup, files
from fencepost.engines.sqlite.layout import COLUMNS, AppendRow, EventRow, RecordRow

BLOCKED_S = 0.3  # a thread that has not opened the file by then is waiting
ROUNDS = times(4, thorough=12)


def test_a_file_is_made_and_found_again_with_what_was_stored(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Opened", data=b"1", tags={"a"})])
    with fencepost.open(path) as store:
        assert [event.data for event in store.read()] == [b"1"]


@pytest.mark.parametrize(("table", "row"), [("events", EventRow), ("appends", AppendRow), ("records", RecordRow)])
def test_the_layout_names_the_columns_of_the_table_in_their_order(path: Path, table: str, row: type[EventRow]) -> None:
    with fencepost.open(path, record_conditions=True):
        columns = [name for (name,) in outside(path, f"SELECT name FROM pragma_table_info('{table}')")]
    assert tuple(columns) == row._fields


def test_an_event_takes_the_columns_of_its_row_in_their_order(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Opened", data=b"1", tags={"a"}, id=UUID(int=7), metadata={"by": "ada"})])
        (event,) = store.read()
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            (row,) = connection.execute(f"SELECT {COLUMNS} FROM events")
    assert event.stored == row


def test_the_file_says_what_it_is_and_can_be_read_with_any_sqlite_tool(path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Opened", data=b'{"a": 1}', tags={"b", "a"}, metadata={"by": "me"})])
    assert foreign(path, "PRAGMA application_id") == [[0x46504F53]]
    assert foreign(path, "PRAGMA user_version") == [[3]]
    assert foreign(path, "PRAGMA journal_mode") == [["wal"]]
    columns = "SELECT position, type, tags, CAST(data AS TEXT), id, metadata FROM events"
    assert foreign(path, columns) == [[1, "Opened", '["a","b"]', '{"a": 1}', None, '{"by":"me"}']]


@pytest.mark.parametrize(("number", "remedy"), [(4, "upgrade Fencepost"), (2, "export it with the version")])
def test_another_format_is_refused_with_what_to_do(path: Path, number: int, remedy: str) -> None:
    fencepost.open(path).close()
    outside(path, f"PRAGMA user_version = {number}")
    with pytest.raises(FormatUnsupported, match=rf"format {number}.*{remedy}"):
        fencepost.open(path)


def test_pages_end_in_room_for_checksums_also_those_of_a_backup(path: Path, tmp_path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Opened")])
    backup(path, tmp_path / "copy.db")
    assert [file.read_bytes()[20] for file in (path, tmp_path / "copy.db")] == [8, 8]


def test_an_installation_without_the_extension_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['apsw.sqlite_extra'] = None; import fencepost; fencepost.open(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "s.db"], capture_output=True, text=True, check=False
    )
    assert re.search("StoreUnavailable: .*cksumvfs.*pip install --force-reinstall apsw", done.stderr)


def test_other_connections_of_the_process_keep_their_default(path: Path) -> None:
    default = apsw.vfs_names()[0]
    fencepost.open(path).close()
    assert apsw.vfs_names()[0] == default != "cksmvfs"


def test_another_applications_sqlite_file_is_refused_and_left_as_it_is(path: Path) -> None:
    outside(path, "CREATE TABLE theirs (a)")
    content = path.read_bytes()
    with pytest.raises(FormatUnsupported, match="not a Fencepost store"):
        fencepost.open(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"a text\n", b"this is a text and no database\n" * 500])
def test_a_file_that_is_not_sqlite_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FormatUnsupported, match="not a Fencepost store"):
        fencepost.open(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with fencepost.open(path) as store:
        assert store.append([Event("Opened")]).first == 1


def test_an_empty_database_of_another_application_is_refused(path: Path) -> None:
    outside(path, "PRAGMA application_id = 7")
    with pytest.raises(FormatUnsupported, match="not a Fencepost store"):
        fencepost.open(path)


def test_without_create_a_missing_file_is_not_made(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such store"):
        fencepost.open(path, create=False)
    assert not path.exists()


def test_opening_a_new_file_waits_for_the_process_that_creates_it(path: Path) -> None:
    maker = apsw.Connection(str(path))
    maker.execute("BEGIN IMMEDIATE")
    opened: list[EventStore] = []
    opening = threading.Thread(target=lambda: opened.append(fencepost.open(path)))
    opening.start()
    opening.join(BLOCKED_S)
    maker.execute("ROLLBACK")
    maker.close()
    opening.join()
    (store,) = opened
    assert store.append([Event("Opened")]).first == 1
    store.close()


def test_a_store_that_another_process_creates_meanwhile_is_not_taken_for_another_programs_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_ours = files._is_ours
    makers: list[threading.Thread] = []

    def overtaken(connection: apsw.Connection, path: str) -> bool:
        answer = is_ours(connection, path)
        if not makers:
            makers.append(threading.Thread(target=lambda: fencepost.open(path).close()))
            makers[0].start()
            makers[0].join(BLOCKED_S)
        return answer

    monkeypatch.setattr(files, "_is_ours", overtaken)
    with fencepost.open(path) as store:
        makers[0].join()
        assert store.append([Event("Opened")]).first == 1


def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    children = [Child(starter.__file__, tmp_path / f"reports-{number}", tmp_path, ROUNDS) for number in range(6)]
    for number in range(ROUNDS):
        for child in children:
            child.wait_for(2 * number + 1)
        (tmp_path / f"go-{number}").touch()
    for child in children:
        child.result()
    for number in range(ROUNDS):
        said = sorted(child.lines()[2 * number + 1] for child in children)
        assert said == [f"placed at {position}" for position in range(1, 7)]
