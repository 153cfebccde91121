"""Reading damaged data raises an error, in every way to read it; it never returns another answer."""

from __future__ import annotations

import pickle
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import apsw
import pytest
from tests.sqlite.outside import outside
from tests.torture.damage import Damage, Original, attack, make, small_constants

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, Query, StoreCorrupt, StoreError
from fencepost.engines.sqlite import verify

ALL = Query.of(tags={"all"})
READS: dict[str, Callable[[EventStore], object]] = {
    "all": lambda store: list(store.read()),
    "backwards": lambda store: list(store.read(backwards=True)),
    "by tag": lambda store: list(store.read(ALL)),
    "by tag, backwards": lambda store: list(store.read(ALL, backwards=True)),
    "a few by tag": lambda store: list(store.read(Query.of(tags={"n:5"}))),
    "by type": lambda store: list(store.read(Query.of(types={"T1"}))),
    "by tags": lambda store: list(store.read(Query.of(tags={"all", "n:5"}))),
    "subscription": lambda store: list(store.subscribe(Query.all(), timeout=0)),
    "decision": lambda store: store.append([Event("New")], AppendCondition(Query.of(tags={"n:5"}))),
    "unless": lambda store: store.append([Event("New")], unless=Query.of(tags={"n:5"})),
    "retry": lambda store: store.append([Event("New", id=UUID(int=5))]),
}


@pytest.fixture
def filled(path: Path, small: None) -> Path:
    """Eleven events: the first eight are indexed, the last ones are not."""
    with fencepost.open(path) as store:
        for number in range(1, 12):
            event = Event(
                f"T{number % 2}", data=b"content %d" % number, tags={"all", f"n:{number}"}, id=UUID(int=number)
            )
            store.append([event], checkpoint=("consumer", 100 + number))
    assert verify(path).sound
    return path


def flip(path: Path, content: bytes, within: int, bit: int = 1) -> None:
    """Flip it in each copy of the content: pages from which rows were moved still hold the old bytes."""
    flipped = bytearray(content)
    flipped[within] ^= bit
    found = path.read_bytes()
    assert content in found
    path.write_bytes(found.replace(content, flipped))


@pytest.mark.parametrize("read", READS)
def test_a_changed_event_is_never_handed_out_or_decided_upon(filled: Path, read: str) -> None:
    flip(filled, b"content 5", 3)
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match=r"event 5 .*verify.*salvage"):
        READS[read](store)


def test_events_that_are_whole_are_read_beside_a_damaged_one(filled: Path) -> None:
    flip(filled, b"content 5", 3)
    with fencepost.open(filled) as store:
        assert [event.position for event in store.read(upto=4)] == [1, 2, 3, 4]
        assert [event.position for event in store.read(Query.of(tags={"n:6"}))] == [6]


@pytest.mark.parametrize("read", ["all", "by tag", "a few by tag"])
def test_a_text_that_is_not_utf_8_any_more_is_corruption(filled: Path, read: str) -> None:
    flip(filled, b'["all","n:5"]', 4, 0x80)
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match="event 5 "):
        READS[read](store)
    assert any("event 5" in str(problem) and "UTF-8" in str(problem) for problem in verify(filled).problems)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "'T2'"),
        ("tags", '\'["all","n:6"]\''),
        ("recorded_at", "recorded_at + 1"),
        ("id", "NULL"),
        ("metadata", "''"),
        ("checksum", "checksum + 1"),
        ("checksum", "checksum - 4294967296"),
    ],
)
def test_each_column_is_checked(filled: Path, column: str, value: str) -> None:
    outside(filled, f"UPDATE events SET {column} = {value} WHERE position = 5")
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match="event 5 "):
        list(store.read())


@pytest.mark.parametrize("position", [5, 10])
def test_what_another_process_has_damaged_does_not_enter_the_tail(filled: Path, position: int) -> None:
    outside(filled, f"UPDATE events SET data = x'00' WHERE position = {position}")
    outside(filled, "UPDATE generations SET state = 'dead'")  # so that everything is in the tail
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match=f"event {position} "):
        store.append([Event("New")])


@pytest.mark.parametrize("read", ["all", "backwards", "by tag", "a few by tag", "subscription"])
def test_an_event_that_is_gone_is_missed(filled: Path, read: str) -> None:
    with fencepost.open(filled) as store:
        outside(filled, "DELETE FROM events WHERE position = 5")
        with pytest.raises(StoreCorrupt, match="event 5 is missing"):
            READS[read](store)


def page_of(path: Path, table: str, kind: str = "leaf") -> int:
    """The number of the last page of a table."""
    with apsw.Connection(str(path)) as connection:
        sql = "SELECT max(pageno) FROM dbstat WHERE name = ? AND pagetype = ?"
        number = connection.execute(sql, (table, kind)).get
    connection.close()
    assert number is not None
    return int(number)


def test_a_log_that_has_lost_its_end_is_not_opened(filled: Path) -> None:
    content = bytearray(filled.read_bytes())
    count = (page_of(filled, "events") - 1) * 4096 + 4  # how many cells the page has
    assert content[count] == 11
    content[count] = 8
    filled.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"last pages of the log.*salvage"):
        fencepost.open(filled)


def test_a_log_that_becomes_shorter_is_damaged(filled: Path) -> None:
    with fencepost.open(filled) as store:
        assert store.head() == 11
        outside(filled, "DELETE FROM events WHERE position > 9")
        with pytest.raises(StoreCorrupt, match="ends at 9, but ended at 11"):
            store.head()


def test_checks_can_be_turned_off(filled: Path) -> None:
    flip(filled, b"content 5", 3)
    with fencepost.open(filled, check_reads=False) as store:
        assert [event.data for event in store.read()][4] == b"conuent 5"


@pytest.mark.parametrize(
    ("posting", "act"),
    [
        ("'n:4', 2, 5", lambda store: list(store.read(Query.of(tags={"n:4"})))),
        ("'n:4', 2, 5", lambda store: list(store.read(Query.of(tags={"n:4"}), backwards=True))),
        ("'absent', 2, 5", lambda store: store.append([Event("New")], AppendCondition(Query.of(tags={"absent"})))),
        ("'absent', 2, 5", lambda store: store.append([Event("New")], unless=Query.of(tags={"absent"}))),
        ("x'000000000000000000000000000000ff', 2, 5", lambda store: store.append([Event("New", id=UUID(int=255))])),
    ],
)
def test_a_posting_that_leads_to_the_wrong_event_is_not_believed(
    filled: Path, posting: str, act: Callable[[EventStore], object]
) -> None:
    outside(
        filled, f"INSERT INTO postings SELECT generation, {posting} FROM generations WHERE first <= 5 AND last >= 5"
    )
    with fencepost.open(filled) as store, pytest.raises(StoreCorrupt):
        act(store)


@pytest.mark.parametrize("change", ["last = 9 WHERE last = 8", "first = 2 WHERE first = 1", "last = 99 WHERE last = 8"])
def test_an_index_that_does_not_cover_what_it_says_is_not_opened(filled: Path, change: str) -> None:
    outside(filled, f"UPDATE generations SET {change}")
    with pytest.raises(StoreCorrupt, match="generation"):
        fencepost.open(filled)
    report = verify(filled)
    assert not report.sound
    assert report.log_is_sound


class TestCheckpoints:
    def test_a_changed_one_is_not_read(self, filled: Path) -> None:
        flip(filled, b"consumer111", 8, 0x08)  # 111 becomes 911
        with fencepost.open(filled) as store:
            with pytest.raises(StoreCorrupt, match=r"checkpoint 'consumer'.*verify.*salvage"):
                store.checkpoint("consumer")
            with pytest.raises(StoreCorrupt, match="checkpoint 'consumer'"):
                store.append([], checkpoint=("consumer", 1_000))
        report = verify(filled)
        assert [problem.part for problem in report.problems] == ["checkpoints"]
        assert report.log_is_sound

    def test_one_whose_name_was_changed_is_not_taken_for_a_new_one(self, filled: Path) -> None:
        flip(filled, b"consumer111", 2)
        with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match="checkpoint"):
            store.checkpoint("consumer")

    def test_one_that_was_lost_is_not_taken_for_a_new_one(self, filled: Path) -> None:
        content = bytearray(filled.read_bytes())
        count = (page_of(filled, "checkpoints") - 1) * 4096 + 4
        assert content[count] == 1
        content[count] = 0
        filled.write_bytes(content)
        with fencepost.open(filled) as store, pytest.raises(StoreCorrupt, match="checkpoints"):
            store.checkpoint("consumer")


class TestFormat1:
    """Files of format 1 are read, checked by their own checksum, and brought to format 2 when they are opened."""

    @pytest.fixture
    def old(self, filled: Path) -> Path:
        rows = outside(filled, "SELECT position, type, tags, hex(data), recorded_at, hex(id) FROM events")
        changes = ["ALTER TABLE checkpoints DROP COLUMN checksum", "PRAGMA user_version = 1"]
        for position, type, tags, data, recorded_at, id in rows:
            rest = f"{position}\0{type}\0{tags}\0{recorded_at}\0{id.lower()}\0\0"
            checksum = zlib.crc32(bytes.fromhex(data), zlib.crc32(rest.encode()))
            changes.append(f"UPDATE events SET checksum = {checksum} WHERE position = {position}")
        changes.append(
            "CREATE TABLE appends (last INTEGER PRIMARY KEY, first INTEGER, conditions TEXT, unless TEXT) STRICT"
        )
        changes.append("INSERT INTO appends VALUES (1, 1, '[]', NULL)")
        outside(filled, *changes)
        return filled

    def test_it_is_read_and_goes_on(self, old: Path) -> None:
        with fencepost.open(old, record_conditions=True) as store:
            assert [event.data for event in store.read()] == [b"content %d" % number for number in range(1, 12)]
            assert store.checkpoint("consumer") == 111
            assert [append.first for append in store.recorded()] == [1]
            store.append([Event("New")], checkpoint=("other", 1))
        assert outside(old, "PRAGMA user_version") == [[2]]
        report = verify(old)
        assert report.sound
        assert report.unchecked == ["checkpoint 'consumer'", "append that ends at 1"]

    def test_what_is_damaged_in_it_is_found(self, old: Path) -> None:
        flip(old, b"content 5", 3)
        with fencepost.open(old) as store, pytest.raises(StoreCorrupt, match="event 5 "):
            list(store.read())

    def test_verify_leaves_it_as_it_is(self, old: Path) -> None:
        content = old.read_bytes()
        assert verify(old).sound
        assert old.read_bytes() == content


def test_an_event_that_was_read_travels_as_any_other(filled: Path) -> None:
    with fencepost.open(filled) as store:
        event = next(iter(store.read()))
    copied = pickle.loads(pickle.dumps(event))
    assert copied == event
    assert type(copied) is fencepost.SequencedEvent


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
            ("checkpoints", "leaf"),
            ("appends", "leaf"),
        ],
    )
    def test_a_flipped_bit_changes_no_answer(self, original: Original, tmp_path: Path, table: str, kind: str) -> None:
        begin = (page_of(original.path, table, kind) - 1) * 4096
        content = original.path.read_bytes()
        used = [place for place in range(begin, begin + 4096) if content[place] or place < begin + 16]
        chance = random.Random(f"{table} {kind}")
        with small_constants():
            for number, place in enumerate([*range(begin, begin + 3), *chance.sample(used, 5)]):
                copy = tmp_path / f"{number}.db"
                copy.write_bytes(content[:place] + bytes([content[place] ^ 1 << number % 8]) + content[place + 1 :])
                attack(original, Damage("bit", range(place, place + 1)), copy)


def test_no_error_but_ours_leaves_a_damaged_store(filled: Path, tmp_path: Path) -> None:
    content = filled.read_bytes()
    chance = random.Random(5)
    for number in range(30):
        copy = tmp_path / f"{number}.db"
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        copy.write_bytes(damaged)
        for read in READS.values():
            with suppress(StoreError, ConditionFailed), fencepost.open(copy) as store:
                read(store)
