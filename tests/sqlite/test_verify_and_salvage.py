"""`verify` ends with a report whatever the bytes are, and `salvage` saves all that is whole."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from tests.sqlite.outside import outside
from tests.sqlite.test_damage import flip, flip_page, page_of
from tests.torture.damage import forged_page

import fencepost
from fencepost import AppendCondition, Event, FormatUnsupported, InvalidInput, Query, SequencedEvent, StoreUnavailable
from fencepost.engine import Report, recorded
from fencepost.engines.sqlite import salvage, verify
from fencepost.engines.sqlite.salvage import LOST

EVENTS = 40


@pytest.fixture
def stored(path: Path, small: None) -> list[SequencedEvent]:
    """The events of the store at `path`, which fill several pages, some of them beyond a page."""
    with fencepost.open(path, record_conditions=True) as store:
        for number in range(1, EVENTS + 1):
            size = 9_000 if number % 20 == 0 else 300
            event = Event(
                f"T{number % 2}",
                data=b"content %03d" % number + bytes([number]) * size,
                tags={"all", f"n:{number}"},
                id=UUID(int=number),
                metadata={"number": str(number)},
            )
            store.append([event], AppendCondition(Query.of(tags={f"n:{number}"})), checkpoint=("consumer", number))
        for expected in range(3):
            store.records.put("kept", b"%d" % expected, expected=expected)
        return list(store.read())


def spoil(path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(content)


def parts(report: Report) -> set[str]:
    return {problem.part for problem in report.problems}


class TestVerify:
    @pytest.mark.parametrize("seed", range(40))
    def test_a_file_cut_off_anywhere_gives_a_report(self, path: Path, stored: object, seed: int) -> None:
        content = path.read_bytes()
        chance = random.Random(seed)
        length = [1, 15, 16, 71, 99, 100, 4095, 4096][seed] if seed < 8 else chance.randrange(len(content))
        path.write_bytes(content[:length])
        try:
            report = verify(path)
        except FormatUnsupported:
            assert length < 100, "the header is there, so this is a store"
        else:
            assert not report.sound

    @pytest.mark.parametrize(
        "header", [bytes(100), b"no header at all" * 6 + b"----", b"SQLite format 3\0" + bytes(84)]
    )
    def test_a_header_that_is_overwritten_is_a_finding(self, path: Path, stored: object, header: bytes) -> None:
        content = path.read_bytes()
        path.write_bytes(header + content[100:])
        report = verify(path)
        assert "page 1" in str(report.problems[0])
        assert not report.log_is_sound

    def test_a_schema_that_cannot_be_parsed_is_a_finding(self, path: Path, stored: object) -> None:
        flip_page(path, 1)
        assert parts(verify(path)) == {"file"}

    def test_a_format_that_is_not_known_is_refused(self, path: Path, stored: object) -> None:
        outside(path, "PRAGMA user_version = 99")
        with pytest.raises(FormatUnsupported, match="format 99"):
            verify(path)

    def test_a_broken_tree_does_not_hide_which_events_are_whole(self, path: Path, stored: list[SequencedEvent]) -> None:
        page = page_of(path, "events")
        spoil(path, page)
        report = verify(path)
        assert {"log"} <= parts(report)
        assert any(f"page {page}" in str(problem) or f"page {page} " in str(problem) for problem in report.problems)
        assert report.whole[0][0] == 1
        assert sum(last - first + 1 for first, last in report.whole) < EVENTS

    @pytest.mark.parametrize(("table", "part"), [("postings", "index"), ("types", "index"), ("generations", "index")])
    def test_damage_of_the_index_is_not_damage_of_the_log(
        self, path: Path, stored: object, table: str, part: str
    ) -> None:
        spoil(path, page_of(path, table))
        report = verify(path)
        assert parts(report) == {part}
        assert report.log_is_sound
        assert (report.events, report.whole) == (EVENTS, [(1, EVENTS)])

    def test_damage_of_conditions_and_records_is_named(self, path: Path, stored: object) -> None:
        spoil(path, page_of(path, "records"))
        spoil(path, page_of(path, "appends"))
        assert parts(verify(path)) == {"records", "conditions"}

    @pytest.mark.parametrize("damaged", [False, True])
    def test_it_changes_nothing_and_leaves_nothing_behind(self, path: Path, stored: object, damaged: bool) -> None:
        if damaged:
            flip(path, b"content 007", 3)
        content = path.read_bytes()
        assert verify(path).sound is not damaged
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]

    def test_a_write_ahead_log_is_left_where_it_is(self, path: Path, tmp_path: Path) -> None:
        crashed = crash(path, tmp_path, appends=5)
        log = Path(f"{crashed}-wal").read_bytes()
        assert verify(crashed).events == 5
        assert Path(f"{crashed}-wal").read_bytes() == log

    def test_a_sound_store_is_sound_while_others_write(self, path: Path, small: None) -> None:
        stop = threading.Event()
        with fencepost.open(path, record_conditions=True) as store:
            store.append([Event("A")])

            def write() -> None:
                while not stop.is_set():
                    store.append([Event("A", data=bytes(500), tags={"x"})] * 3, checkpoint=("c", store.head() + 1))

            writer = threading.Thread(target=write)
            writer.start()
            try:
                assert [verify(path).problems for _ in range(10)] == [[]] * 10
            finally:
                stop.set()
                writer.join()

    def test_damage_in_a_write_ahead_log_with_commits_behind_it_is_found(self, path: Path, tmp_path: Path) -> None:
        crashed = crash(path, tmp_path, appends=5)
        log = Path(f"{crashed}-wal")
        log.write_bytes(log.read_bytes().replace(b"content 003", b"contend 003"))
        (problem, *_) = verify(crashed).problems
        assert str(problem).startswith("write-ahead log: frame")


def crash(path: Path, folder: Path, appends: int) -> Path:
    """A copy of a store in use: the file, and the write-ahead log with the last appends."""
    crashed = folder / "crashed.db"
    with fencepost.open(path) as store:
        for number in range(1, appends + 1):
            # Large, so that each is on pages of its own.
            store.append([Event("A", data=b"content %03d" % number + bytes(5_000), tags={"all"})])
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    return crashed


class TestSalvage:
    @pytest.fixture
    def to(self, tmp_path: Path) -> Path:
        return tmp_path / "saved.db"

    def test_a_sound_store_is_copied_as_it_is(self, path: Path, to: Path, stored: list[SequencedEvent]) -> None:
        saved = salvage(path, to)
        assert saved.complete
        assert (saved.head, saved.events, saved.appends, saved.checkpoints) == (EVENTS, EVENTS, EVENTS, 1)
        assert verify(to).sound
        with fencepost.open(path) as one, fencepost.open(to) as other:
            assert list(other.read()) == stored
            assert list(recorded(other)) == list(recorded(one))
            assert other.checkpoint("consumer") == EVENTS
            assert other.records.get("kept") == one.records.get("kept")
            assert [event.position for event in other.read(Query.of(tags={"n:7"}))] == [7]
            assert other.append([Event("New")]).first == EVENTS + 1

    def test_what_is_lost_leaves_a_placeholder_and_everything_else_its_position(
        self, path: Path, to: Path, stored: list[SequencedEvent]
    ) -> None:
        page = flip(path, b"content 007", 3)
        saved = salvage(path, to)
        ((first, last),) = saved.lost
        assert first <= 7 <= last < first + 12, "the events of one page"
        assert not saved.complete
        assert saved.events == EVENTS - (last - first + 1)
        assert saved.lost == inverse(verify(path).whole), "verify says the same"
        assert page in {int(problem.where.split()[1]) for problem in verify(path).problems}
        assert verify(to).sound
        with fencepost.open(to) as store:
            for event, before in zip(store.read(), stored, strict=True):
                if first <= event.position <= last:
                    assert (event.type, event.tags, event.data, event.id) == (LOST, frozenset(), b"", None)
                else:
                    assert event == before

    def test_a_damaged_page_of_a_large_event_costs_that_event_alone(
        self, path: Path, to: Path, stored: list[SequencedEvent]
    ) -> None:
        spoil(path, page_of(path, "events", "overflow"))
        assert salvage(path, to).lost == [(40, 40)]

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda path: spoil(path, 1), id="the first page"),
            pytest.param(lambda path: spoil(path, page_of(path, "events", "internal")), id="the root of the log"),
            pytest.param(lambda path: spoil(path, page_of(path, "postings")), id="the index"),
            pytest.param(lambda path: spoil(path, page_of(path, "generations")), id="the generations"),
            pytest.param(lambda path: cut_header(path), id="the header"),
        ],
    )
    def test_no_tree_is_needed(
        self, path: Path, to: Path, stored: list[SequencedEvent], damage: Callable[[Path], None]
    ) -> None:
        damage(path)
        content = path.read_bytes()
        saved = salvage(path, to)
        assert saved.lost == []
        with fencepost.open(to) as store:
            assert list(store.read()) == stored
        assert path.read_bytes() == content

    def test_no_data_of_an_event_is_taken_for_other_events(self, path: Path, to: Path) -> None:
        """Its data looks like pages of events, with checksums, at every offset at which a page may begin."""
        forged = forged_page(path.with_name("forger.db"))
        with fencepost.open(path) as store:
            store.append([Event("Paid", data=b"%d" % number, tags={"all"}) for number in range(1, 31)])
            for shift in range(0, 4096, 4):
                store.append([Event("Upload", data=bytes(shift) + forged * 3)])
            before = list(store.read())
        assert salvage(path, to).complete
        with fencepost.open(to) as store:
            assert list(store.read()) == before
        to.unlink()
        spoil(path, page_of(path, "events", "internal"))
        spoil(path, 1)
        saved = salvage(path, to)
        with fencepost.open(to) as store:
            for event in store.read():
                assert event == before[event.position - 1] or event.type == LOST
        assert saved.head <= len(before)

    def test_a_truncated_file_keeps_what_is_before_the_cut(
        self, path: Path, to: Path, stored: list[SequencedEvent]
    ) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: content.index(b"content 030")])
        saved = salvage(path, to)
        with fencepost.open(to) as store:
            found = [event for event in store.read() if event.type != LOST]
        assert len(found) == saved.events > 10
        assert all(stored[event.position - 1] == event for event in found)

    def test_checkpoints_above_the_last_event_are_told_and_positions_not_given_out_again(
        self, path: Path, to: Path, tmp_path: Path, small: None
    ) -> None:
        with fencepost.open(path) as store:
            store.append([Event("A")] * 5, checkpoint=("consumer", 8))
        saved = salvage(path, to)
        assert (saved.head, saved.ahead, saved.complete) == (5, ["consumer"], False)
        filled = salvage(path, tmp_path / "filled.db", head=8)
        assert (filled.head, filled.lost, filled.ahead) == (8, [(6, 8)], [])
        with fencepost.open(tmp_path / "filled.db") as store:
            assert store.append([Event("A")]).first == 9
        with pytest.raises(InvalidInput, match="head: 3, but the file holds position 5"):
            salvage(path, tmp_path / "third.db", head=3)

    def test_what_is_in_the_write_ahead_log_is_saved(self, path: Path, to: Path, tmp_path: Path) -> None:
        crashed = crash(path, tmp_path, appends=5)
        files = [crashed.read_bytes(), Path(f"{crashed}-wal").read_bytes()]
        assert salvage(crashed, to).events == 5
        assert [crashed.read_bytes(), Path(f"{crashed}-wal").read_bytes()] == files

    def test_the_write_ahead_log_is_saved_although_the_first_page_is_damaged(
        self, path: Path, to: Path, tmp_path: Path
    ) -> None:
        crashed = crash(path, tmp_path, appends=5)
        spoil(crashed, 1)
        assert salvage(crashed, to).events == 5

    def test_it_can_run_beside_an_open_store_of_the_same_process(
        self, path: Path, to: Path, stored: list[SequencedEvent]
    ) -> None:
        with fencepost.open(path) as store:
            store.append([Event("New")])
            assert salvage(path, to).events == EVENTS + 1
            outside(path, "UPDATE records SET value = value")  # the lock is free
            assert store.append([Event("New")]).first == EVENTS + 2

    def test_no_file_is_replaced_and_no_other_file_taken_for_a_store(
        self, path: Path, to: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(StoreUnavailable, match="no such store"):
            salvage(path, to)
        path.write_bytes(b"something else " * 1_000)
        with pytest.raises(FormatUnsupported):
            salvage(path, to)
        with pytest.raises(FormatUnsupported):
            verify(path)
        fencepost.open(tmp_path / "store2.db").close()
        to.write_text("taken")
        with pytest.raises(InvalidInput, match="exists already"):
            salvage(tmp_path / "store2.db", to)
        assert to.read_text() == "taken"
        assert not list(tmp_path.glob("*.partial*"))


def cut_header(path: Path) -> None:
    path.write_bytes(bytes(100) + path.read_bytes()[100:])


def inverse(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies between the ranges."""
    return [
        (end + 1, begin - 1) for (_, end), (begin, _) in pairwise([(0, 0), *ranges, (EVENTS + 1, 0)]) if end + 1 < begin
    ]
