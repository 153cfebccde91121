"""A damaged page is an error that names it, on every path that reads it; what does not read it goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID

import apsw
import pytest
from tests.sqlite.outside import foreign, outside
from tests.torture.damage import Damage, Original, attack, make, small_constants

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query, StoreCorrupt, StoreError
from fencepost.engines.sqlite import backup, page_checksums, verify
from fencepost.tools import copy_log

ALL = Query.of(tags={"all"})
PAGE_BYTES = 4_096


def copied(store: EventStore) -> object:
    with fencepost.open("memory:") as target:
        return copy_log(store, target)


READS: dict[str, Callable[[EventStore], object]] = {
    "all": lambda store: list(store.read()),
    "backwards": lambda store: list(store.read(backwards=True)),
    "by tag": lambda store: list(store.read(ALL)),
    "by tag, backwards": lambda store: list(store.read(ALL, backwards=True)),
    "a few by tag": lambda store: list(store.read(Query.of(tags={"n:5"}))),
    "by type": lambda store: list(store.read(Query.of(types={"T1"}))),
    "by tags": lambda store: list(store.read(Query.of(tags={"all", "n:5"}))),
    "subscription": lambda store: list(store.subscribe(Query.all(), timeout_s=0)),
    "copy": copied,
}
APPENDS: dict[str, Callable[[EventStore], object]] = {
    "decision": lambda store: store.append([Event("New")], AppendCondition(Query.of(tags={"n:5"}))),
    "unless": lambda store: store.append([Event("New")], unless=Query.of(tags={"n:5"})),
    "retry": lambda store: store.append([Event("New", id=UUID(int=5))]),
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test finds its damaged pages itself."""
    monkeypatch.setattr(page_checksums, "_remembered", {})


@pytest.fixture
def filled(path: Path, small: None) -> Path:
    """Forty events on several pages: all but the last few are indexed."""
    with fencepost.open(path) as store:
        for number in range(1, 41):
            event = Event(
                f"T{number % 2}",
                data=b"content %d " % number + bytes(700),
                tags={"all", f"n:{number}"},
                id=UUID(int=number),
            )
            store.append([event], checkpoint=("consumer", 100 + number))
    assert verify(path).sound
    return path


def flip(path: Path, content: bytes, within: int) -> int:
    """Flip a bit of the content in the page that the tree of events leads to; returns the number of the page."""
    found = bytearray(path.read_bytes())
    with closing(apsw.Connection(str(path))) as connection:
        pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf'").fetchall()
    for (page,) in pages:
        place = found.find(content, (page - 1) * PAGE_BYTES, page * PAGE_BYTES)
        if place >= 0:
            found[place + within] ^= 1
            path.write_bytes(found)
            return int(page)
    raise AssertionError(f"{content!r} is on no page of events")


def flip_page(path: Path, page: int) -> None:
    found = bytearray(path.read_bytes())
    found[(page - 1) * PAGE_BYTES + 2_000] ^= 1
    path.write_bytes(found)


def page_of(path: Path, table: str, kind: str = "leaf") -> int:
    """The number of the last page of a table."""
    with closing(apsw.Connection(str(path))) as connection:
        sql = "SELECT max(pageno) FROM dbstat WHERE name = ? AND pagetype = ?"
        number = connection.execute(sql, (table, kind)).get
    assert number is not None
    return int(number)


@pytest.mark.parametrize("read", READS)
def test_reading_a_damaged_page_names_the_file_the_page_and_what_to_do(filled: Path, read: str) -> None:
    page = flip(filled, b"content 5 ", 3)
    with (
        fencepost.open(filled) as store,
        pytest.raises(StoreCorrupt, match=rf"{filled}: page {page} does .*verify.*salvage"),
    ):
        READS[read](store)


@pytest.mark.parametrize("append", APPENDS)
def test_an_append_that_needs_a_damaged_page_of_the_index_names_it(filled: Path, append: str) -> None:
    page = page_of(filled, "postings")
    flip_page(filled, page)
    with fencepost.open(filled) as store:
        with pytest.raises(StoreCorrupt, match=rf"page {page} does .*verify.*salvage"):
            APPENDS[append](store)
        assert len(list(store.read())) == 40, "what does not need the page goes on"


def test_a_backup_of_a_damaged_page_names_the_store_and_leaves_no_file(filled: Path, tmp_path: Path) -> None:
    page = flip(filled, b"content 5 ", 3)
    with pytest.raises(StoreCorrupt, match=rf"{filled}: page {page} does"):
        backup(filled, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == [filled]


def test_a_damaged_free_page_holds_nothing_and_hinders_nothing(filled: Path, tmp_path: Path) -> None:
    outside(filled, "CREATE TABLE t (a)", "INSERT INTO t VALUES (zeroblob(40000))", "DROP TABLE t")
    flip_page(filled, int(outside(filled, "PRAGMA page_count")[0][0]) - 2)
    assert verify(filled).sound
    assert backup(filled, tmp_path / "copy.db") == 40
    assert verify(tmp_path / "copy.db").sound


def test_events_on_other_pages_are_read_and_appended(filled: Path) -> None:
    flip(filled, b"content 5 ", 3)
    with fencepost.open(filled) as store:
        assert [event.position for event in store.read(Query.of(tags={"n:30"}))] == [30]
        assert store.append([Event("New")], AppendCondition(Query.of(tags={"n:5"}), after=5)).first == 41


def test_several_damaged_pages_are_named(filled: Path) -> None:
    pages = sorted(flip(filled, b"content %d " % number, 3) for number in (5, 30))
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match=f"pages {pages[0]}, {pages[1]} do"):
        list(store.read())


def test_a_header_that_turns_checksums_off_is_damage(filled: Path) -> None:
    content = bytearray(filled.read_bytes())
    content[20] = 0
    filled.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="page 1 is damaged"):
        fencepost.open(filled)
    assert not verify(filled).sound


def test_what_a_tool_without_checksums_writes_is_damage(filled: Path) -> None:
    foreign(filled, "UPDATE records SET value = x'37'")
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match="does not agree with the checksum"):
        store.checkpoint("consumer")


@pytest.mark.parametrize("read", ["all", "backwards", "by tag", "a few by tag", "subscription"])
def test_an_event_that_is_gone_is_missed(filled: Path, read: str) -> None:
    with fencepost.open(filled) as store:
        outside(filled, "DELETE FROM events WHERE position = 5")
        with pytest.raises(StoreCorrupt, match="event 5 is missing"):
            READS[read](store)


def test_a_log_that_ends_before_its_last_clean_close_is_not_opened(filled: Path) -> None:
    outside(filled, "DELETE FROM events WHERE position > 38")
    with pytest.raises(StoreCorrupt, match=r"ends at 38, but ended at 40 before.*salvage"):
        fencepost.open(filled)
    assert any("ended at 40" in str(problem) for problem in verify(filled).problems)


def test_a_log_that_becomes_shorter_is_damaged(filled: Path) -> None:
    with fencepost.open(filled) as store:
        assert store.head() == 40
        outside(filled, "DELETE FROM events WHERE position > 38")
        with pytest.raises(StoreCorrupt, match=r"ends at 38, but ended at 40.*open the store again"):
            store.head()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    with small_constants():
        return make(tmp_path_factory.mktemp("damage") / "store.db", random.Random(1), log=False)


class TestEveryKindOfPage:
    """Flips bits in each kind; `tests.torture.damage` defines what must hold then."""

    @pytest.mark.parametrize(
        ("table", "kind"),
        [
            ("sqlite_schema", "leaf"),
            ("events", "leaf"),
            ("events", "internal"),
            ("events", "overflow"),
            ("types", "leaf"),
            ("sqlite_autoindex_types_1", "leaf"),
            ("postings", "leaf"),
            ("postings", "internal"),
            ("generations", "leaf"),
            ("records", "leaf"),
            ("closed", "leaf"),
            ("appends", "leaf"),
        ],
    )
    def test_a_flipped_bit_changes_no_answer(self, original: Original, tmp_path: Path, table: str, kind: str) -> None:
        begin = (page_of(original.path, table, kind) - 1) * PAGE_BYTES
        content = original.path.read_bytes()
        chance = random.Random(f"{table} {kind}")
        with small_constants():
            for number, place in enumerate([begin, begin + 20, *chance.sample(range(begin, begin + PAGE_BYTES), 3)]):
                copy = tmp_path / f"{number}.db"
                copy.write_bytes(content[:place] + bytes([content[place] ^ 1 << number % 8]) + content[place + 1 :])
                attack(original, Damage("bit", range(place, place + 1)), copy)


def test_no_error_but_ours_leaves_a_damaged_store(filled: Path, tmp_path: Path) -> None:
    content = filled.read_bytes()
    chance = random.Random(5)
    for number in range(20):
        copy = tmp_path / f"{number}.db"
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        copy.write_bytes(damaged)
        for act in (*READS.values(), *APPENDS.values()):
            with suppress(StoreError, ConditionFailed), fencepost.open(copy) as store:
                act(store)
