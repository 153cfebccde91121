"""`fencepost copy` between stores: equal logs, resumed copies, refused targets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.copying.conftest import events, fill, log
from tests.server.running import RunningServer

import fencepost
from fencepost import Event, EventStore, InvalidInput, Record, SequencedEvent, StoreCorrupt, StoreError
from fencepost.engine import CHECKPOINTS, restore
from fencepost.engines.memory import MemoryEngine
from fencepost.engines.sqlite.engine import SqliteEngine
from fencepost.tools import copy_log

pytestmark = pytest.mark.usefixtures("small_parts")


def test_a_copy_into_a_new_file_is_equal(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    (said,) = cli("copy", source, target).lines
    assert (said["head"], said["events"], said["appends"], said["verified"]) == (95, 95, 10, True)
    assert log(target) == log(source)
    assert cli("verify", target).code == 0


def test_a_copy_goes_on_where_the_target_ends(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    (first,) = cli("copy", source, target, "--up-to", "33").lines
    assert first["head"] == 33
    with fencepost.open(source, record_conditions=True) as store:
        fill(store, 20)
    (second,) = cli("copy", source, target).lines
    assert (second["events"], second["head"]) == (82, 115)
    assert log(target) == log(source)
    (third,) = cli("copy", source, target).lines
    assert (third["events"], third["digest"]) == (0, second["digest"])


@pytest.mark.parametrize("kind", ["file", "postgresql", "server"])
def test_records_and_checkpoints_are_copied_and_copied_again(
    cli: Cli, source: str, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / "target.db")
    with contextlib.ExitStack() as servers:
        if kind == "postgresql":
            target = request.getfixturevalue("url")
        if kind == "server":
            target = servers.enter_context(RunningServer(target)).url
        with fencepost.open(source) as store:
            store.append([], checkpoint=("reader", 90))
            for number in range(150):
                store.records.put(f"{number:03}", b"%d" % number, expected=0)
            wanted = [(record.name, record.value) for record in store.records.list()]
        (said,) = cli("copy", source, target, "--records").lines
        assert said["records"] == 151
        with fencepost.open(source) as store, fencepost.open(target) as copied:
            assert (copied.checkpoint("reader"), copied.head()) == (90, 95)
            assert [(record.name, record.value) for record in copied.records.list()] == wanted
            for record in list(store.records.list("00")):
                store.records.delete(record.name, expected=record.revision)
            store.records.put("1000", b"new", expected=0)
            (other,) = store.records.list("149")
            store.records.put("149", b"other", expected=other.revision)
            copied.append([], checkpoint=("reader", 95))
            wanted = [(record.name, record.value) for record in store.records.list()]
        (said,) = cli("copy", source, target, "--records").lines
        assert (said["records"], said["events"]) == (12, 0)
        with fencepost.open(target) as copied:
            assert [(record.name, record.value) for record in copied.records.list()] == wanted
            assert copied.checkpoint("reader") == 95


def test_records_are_copied_before_the_events_that_are_stored_meanwhile() -> None:
    """A checkpoint in the copy is never ahead of its log, although the source goes on."""

    class BusyEngine(MemoryEngine):
        def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
            found = super().records(prefix, after=after, limit=limit)
            if prefix == CHECKPOINTS:
                origin.append([Event("Late")], checkpoint=("reader", origin.head() + 1))
                found = super().records(prefix, after=after, limit=limit)
            return found

    engine = BusyEngine()
    with EventStore(engine) as origin, EventStore(MemoryEngine()) as copied:
        fill(origin, 10)
        copy_log(origin, copied, records=True)
        assert 0 < copied.checkpoint("reader") <= copied.head()


def test_records_are_those_of_the_whole_log(cli: Cli, source: str, tmp_path: Path) -> None:
    refused = cli("copy", source, str(tmp_path / "target.db"), "--records", "--up-to", "5")
    assert refused.code != 0
    assert "up_to" in refused.err


def test_a_copy_that_failed_in_the_middle_is_run_again(source: str, tmp_path: Path) -> None:
    class FailingEngine(SqliteEngine):
        calls = 0

        def restore(self, events, appends=()):  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.calls == 4:
                raise StoreError("the disk is full")
            super().restore(events, appends)

    path = str(tmp_path / "target.db")
    with fencepost.open(source) as origin:
        with EventStore(FailingEngine(path)) as opened:
            with pytest.raises(StoreError, match="full"):
                copy_log(origin, opened)
            assert opened.head() == 30
        with fencepost.open(path) as opened:
            assert copy_log(origin, opened).events == 65
    assert log(path) == log(source)


def test_postgresql_as_target_and_as_source(cli: Cli, source: str, url: str, tmp_path: Path) -> None:
    (there,) = cli("copy", source, url).lines
    back = str(tmp_path / "back.db")
    (again,) = cli("copy", url, back).lines
    assert there["digest"] == again["digest"] is not None
    assert log(back) == log(source) == log(url)


def test_a_server_as_target_and_as_source(cli: Cli, source: str, tmp_path: Path) -> None:
    back = str(tmp_path / "back.db")
    with RunningServer(str(tmp_path / "served.db")) as server:
        (there,) = cli("copy", source, server.url).lines
        (again,) = cli("copy", server.url, back).lines
    assert there["digest"] == again["digest"] is not None
    assert log(back) == log(source) == log(str(tmp_path / "served.db"))


@pytest.mark.parametrize("form", ["{}?mode=ro", "{}"])
def test_a_source_that_cannot_be_written_is_copied_and_left_as_it_is(
    cli: Cli, source: str, tmp_path: Path, form: str
) -> None:
    os.chmod(source, 0o444)
    before = Path(source).read_bytes()
    assert cli("copy", form.format(source), str(tmp_path / "target.db")).code == 0
    assert Path(source).read_bytes() == before
    assert log(str(tmp_path / "target.db")) == log(source, read_only=True)


@pytest.mark.parametrize("position", [1, 40])
def test_a_target_with_another_log_is_refused_before_anything_is_written(
    cli: Cli, source: str, tmp_path: Path, position: int
) -> None:
    target = str(tmp_path / "target.db")
    with fencepost.open(target) as store:
        for number in range(1, 51):
            store.append([Event("Another")] if number == position else events(1, number))
    before = log(target)
    ran = cli("copy", source, target)
    assert ran.code == 2
    assert "to: it holds another log, so nothing was copied: its event at position" in ran.err
    assert log(target) == before


def test_without_verification_the_last_events_are_compared(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    assert cli("copy", source, target, "--up-to", "50").code == 0
    with fencepost.open(target) as store:
        store.append([Event("Another")])
    ran = cli("copy", source, target, "--no-verify")
    assert (ran.code, "position 51 differs" in ran.err) == (2, True)


def test_a_target_without_the_recorded_conditions_is_refused(cli: Cli, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    with fencepost.open(source) as origin, fencepost.open(target) as store:
        restore(store, list(origin.read(up_to=20)))
    ran = cli("copy", source, target)
    assert (ran.code, "recorded conditions of the append that ends at 10" in ran.err) == (2, True)


def test_a_target_that_is_longer_is_refused(cli: Cli, source: str, tmp_path: Path) -> None:
    ran = cli("copy", str(tmp_path / "empty.db"), source)
    assert ran.code == 3
    cli("init", str(tmp_path / "empty.db"))
    ran = cli("copy", str(tmp_path / "empty.db"), source)
    assert (ran.code, "wrong order" in ran.err) == (2, True)


def test_a_copy_that_was_stored_wrongly_is_found(source: str) -> None:
    class Forgetful(MemoryEngine):
        def restore(self, events, appends=()):  # type: ignore[no-untyped-def]
            changed = [SequencedEvent(e.position, e.type, e.tags, e.data, e.recorded_at, e.id, {}) for e in events]
            super().restore(changed, appends)

    with (
        fencepost.open(source) as origin,
        EventStore(Forgetful()) as target,
        pytest.raises(StoreCorrupt, match="differs from its source between positions 1 and 95"),
    ):
        copy_log(origin, target)


def test_engines_that_assign_positions_are_refused_with_the_reason(cli: Cli, source: str) -> None:
    ran = cli("copy", source, "fdb:///etc/fdb.cluster")
    assert (ran.code, "FoundationDB assigns its own positions" in ran.err) == (2, True)
    ran = cli("copy", source, "lake:folder")
    assert (ran.code, "fencepost lake export" in ran.err) == (2, True)


def test_a_source_that_does_not_exist_leaves_no_target(cli: Cli, tmp_path: Path) -> None:
    assert cli("copy", str(tmp_path / "none.db"), str(tmp_path / "target.db")).code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_target_is_an_error_of_the_target() -> None:
    with fencepost.open("memory:") as empty, fencepost.open("memory:") as target:
        fill(target, 1)
        with pytest.raises(InvalidInput, match="to: it holds 1 events"):
            copy_log(empty, target)
