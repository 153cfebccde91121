"""The audit proves what was recorded, and finds and names what was planted."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.sqlite.outside import outside
from tests.sqlite.test_damage import flip

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, InvalidInput, Query, QueryItem, StoreCorrupt
from fencepost.buckets import matches
from fencepost.engine import RecordedAppend, recorded, restore
from fencepost.spark import audit, lake, what_if
from fencepost.spark.auditing.boundaries import filled, shape_of
from fencepost.spark.lake_engine.files import lake_at


def decide(store: EventStore, wallet: str, type: str, *, behind: int = 0, id: UUID | None = None) -> None:
    """One decision about a wallet, taken on what was there `behind` positions ago."""
    boundary = Query.of(types={"Opened", "Paid", "Closed"}, tags={f"wallet:{wallet}"})
    condition = AppendCondition(boundary, after=max(store.head() - behind, 0))
    store.append([Event(type, tags={f"wallet:{wallet}"}, id=id)], condition)


def fill(store: EventStore) -> None:
    """Ten events: positions 1 to 3 opened wallets a, b, c; then each was paid from in turn, twice; then an event of an
    append without conditions.
    """
    for wallet in "abc":
        decide(store, wallet, "Opened")
    for number, wallet in enumerate("abcabc"):
        decide(store, wallet, "Paid", behind=2, id=UUID(int=number + 1))
    store.append([Event("Noted")])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.db"
    with fencepost.open(path, record_conditions=True) as store:
        fill(store)
    return path


def test_a_sound_store_is_proven(spark: SparkSession, path: Path) -> None:
    with fencepost.open(path) as store:
        store.append([Event("Unrecorded"), Event("Unrecorded")])
    found = audit(spark, str(path))
    assert found.violations == ()
    assert found.sound
    assert (found.head, found.events, found.appends, found.covered) == (12, 12, 10, 10)
    assert (found.proven, found.refuted) == (9, 0)
    assert found.checksums == "SQLite's own, of every page that is read"
    (busiest,) = found.busiest()
    assert busiest["shape"] == "Closed|Opened|Paid [wallet:*]"
    assert (busiest["appends"], busiest["boundaries"], busiest["violations"]) == (9, 3, 0)
    # A wallet was decided upon two positions behind the head, and three ago it had its own event: nobody between.
    assert (busiest["longest_window"], busiest["smallest_margin"], busiest["close_calls"]) == (2, 0, 6)
    closest = found.closest(1)[0]
    assert (closest["first"], closest["after"], closest["margin"], closest["window"]) == (4, 1, 0, 2)
    (wider,) = found.widest()
    assert (wider["asked"], wider["found"], wider["unused"]) == (
        ["Closed", "Opened", "Paid"],
        ["Opened", "Paid"],
        ["Closed"],
    )
    found.release()


def plant(path: Path, position: int, tags: str) -> None:
    """Give an event other tags: what a clever forger, or a broken engine, would leave."""
    outside(path, f"UPDATE events SET tags = '{tags}' WHERE position = {position}")


def test_everything_that_was_planted_is_found_and_named(spark: SparkSession, path: Path) -> None:
    with fencepost.open(path, record_conditions=True) as store:
        for command in ("1", "2"):  # at positions 11 and 12
            store.append([Event("Done", tags={f"command:{command}"})], unless=Query.of(tags={f"command:{command}"}))
        store.append([Event("Noted")])
        store.append([Event("Noted"), Event("Noted")])
        store.append([Event("Noted")])
        store.append([Event("Noted")])
        store.append([Event("Noted")])
    plant(path, 5, '["wallet:a"]')  # the payment of position 7 was decided after position 4, and so had not seen it
    plant(path, 11, '["command:2"]')
    outside(
        path,
        "UPDATE events SET id = (SELECT id FROM events WHERE position = 4) WHERE position = 8",
        "DELETE FROM events WHERE position IN (1, 10, 18)",
        "UPDATE closed SET head = 0",
        "UPDATE appends SET first = 12 WHERE last = 13",
        "UPDATE appends SET first = 16 WHERE last = 15",
        "UPDATE appends SET conditions = '[7]' WHERE last = 17",
    )
    found = audit(spark, str(path))
    named = {(violation.kind, violation.position): violation.what for violation in found.violations}
    said = {
        ("condition", 7): "from 7 to 7 was stored although position 5, after 4, matches its condition (Closed|Opened|",
        ("unless", 12): "from 12 to 12 was stored although position 11 matches its unless (* [command:*]",
        ("position", 1): "positions 1 to 1 are missing",
        ("position", 10): "the event is missing",
        ("id", 8): "is at position 4 and again here",
        ("append", 13): "the append from 12 to 13 begins in another that ends at 12",
        ("append", 15): "the append from 16 to 15 does not grow",
        ("append", 18): "the append from 18 to 18 ends above the head, 17",
        ("record", 17): "cannot be decoded: conditions[0]: a JSON object is needed",
    }
    assert named.keys() == said.keys()
    assert [what for place, what in said.items() if what not in named[place]] == []
    assert found.refuted == 2
    assert not found.sound
    (row,) = found.conditions.where("conflict IS NOT NULL AND kind = 'condition'").collect()
    assert (row["first"], row["conflict"]) == (7, 5)


def test_a_damaged_page_ends_the_audit_with_its_number(spark: SparkSession, path: Path) -> None:
    page = flip(path, b"wallet:a", 3)
    with pytest.raises(StoreCorrupt, match=f"page {page} does not agree"):
        audit(spark, str(path))


def random_history(store: EventStore, seed: int) -> None:
    """Decisions about random boundaries, taken on random pasts; what conflicts is refused and so not there."""
    chance = random.Random(seed)
    tags = ["a:1", "a:2", "b:1", "b:2", "plain"]
    types = ["A", "B", "C"]
    for _ in range(300):
        items = [
            {"types": chance.sample(types, chance.randint(0, 2)), "tags": chance.sample(tags, chance.randint(0, 2))}
            for _ in range(chance.randint(1, 2))
        ]
        query = Query.from_json(json.dumps({"items": items}))
        conditions = [AppendCondition(query, after=max(store.head() - chance.randint(0, 4), 0))] * chance.randint(0, 2)
        events = [Event(chance.choice(types), tags=chance.sample(tags, chance.randint(0, 3)))] * chance.randint(1, 3)
        with suppress(ConditionFailed):
            store.append(events, conditions)


def conflicts_by_definition(store: EventStore, appends: list[RecordedAppend]) -> set[tuple[int, int]]:
    log = list(store.read())
    return {
        (append.first, number)
        for append in appends
        for number, condition in enumerate(append.conditions)
        if any(
            condition.after < event.position < append.first and matches(event, condition.fail_if_events_match)
            for event in log
        )
    }


def test_the_proof_agrees_with_the_definition(spark: SparkSession, tmp_path: Path) -> None:
    """On a history with many conditions that do not hold: the log of one store with the records of another."""
    with fencepost.open("memory:", record_conditions=True) as one, fencepost.open("memory:") as other:
        random_history(one, 1)
        random_history(other, 2)
        with fencepost.open(tmp_path / "mixed.db") as mixed:
            head = min(one.head(), other.head())
            appends = [append for append in recorded(one) if append.last <= head]
            restore(mixed, other.read(up_to=head), appends)
            expected = conflicts_by_definition(mixed, appends)
    found = audit(spark, str(tmp_path / "mixed.db"))
    refuted = found.conditions.where("conflict IS NOT NULL").collect()
    assert {(row["first"], row["number"]) for row in refuted} == expected
    assert found.refuted == len(expected) > 20
    assert found.proven == sum(len(append.conditions) for append in appends)


def test_a_lake_is_audited_like_the_store_that_it_came_from(spark: SparkSession, tmp_path: Path, path: Path) -> None:
    plant(path, 5, '["wallet:a"]')
    lake.export(spark, str(path), str(tmp_path / "lake"), chunk=4)
    found = audit(spark, f"lake:{tmp_path / 'lake'}")
    assert found.checksums == "SHA-256 of every file"
    assert [(violation.kind, violation.position) for violation in found.violations] == [("condition", 7)]
    assert (found.appends, found.covered) == (10, 10)


def test_a_damaged_lake_is_a_finding(cli: Cli, spark: SparkSession, tmp_path: Path, path: Path) -> None:
    folder = tmp_path / "lake"
    lake.export(spark, str(path), str(folder), chunk=4)
    damaged = lake_at(folder).files[1].path
    (folder / damaged).write_bytes((folder / damaged).read_bytes()[:-1])
    ran = cli("audit", f"lake:{folder}")
    assert ran.code == 4
    (violation,) = ran.lines[0]["violations"]
    assert violation["kind"] == "checksum"
    assert violation["what"].startswith(f"{damaged}: ")
    commit = folder / "_delta_log" / f"{1:020d}.json"
    commit.write_bytes(commit.read_bytes()[:-40])
    found = audit(spark, f"lake:{folder}")
    assert [(violation.kind, "Delta log" in violation.what) for violation in found.violations] == [("checksum", True)]


def test_a_store_that_never_recorded_has_nothing_to_prove(cli: Cli, spark: SparkSession, empty: str) -> None:
    ran = cli("audit", empty)
    assert ran.code == 5
    assert ran.lines == [
        {
            "verdict": "unproven",
            "sound": False,
            "unchecked": [],
            "head": 0,
            "events": 0,
            "appends": 0,
            "covered": 0,
            "proven": 0,
            "refuted": 0,
            "checksums": "SQLite's own, of every page that is read",
            "violations": [],
            "boundaries": [],
            "closest": [],
            "wider": [],
        }
    ]


def test_a_log_without_any_recorded_condition_is_not_called_sound(cli: Cli, spark: SparkSession, empty: str) -> None:
    with fencepost.open(empty) as store:
        decide(store, "a", "Opened")
    with fencepost.open(empty, record_conditions=True) as store:
        store.append([Event("Noted")])  # recorded, and conditional on nothing
    found = audit(spark, empty)
    assert (found.verdict, found.sound, found.proven, found.appends) == ("unproven", False, 0, 1)
    found.release()
    shown = cli("audit", empty, "--table")
    assert shown.code == 5
    text = " ".join(shown.out.split())
    assert "Nothing was proven: no condition was recorded; 1 of 2 events were recorded, in 1 appends" in text
    assert "Sound" not in text


def test_a_violation_is_one_also_where_no_condition_was_recorded(spark: SparkSession, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("A"), Event("A")])
    outside(Path(empty), "UPDATE events SET id = zeroblob(16)")
    found = audit(spark, empty)
    assert (found.verdict, [violation.kind for violation in found.violations]) == ("unsound", ["id"])
    found.release()


def test_what_if_names_an_append_whose_record_is_no_text(cli: Cli, spark: SparkSession, path: Path) -> None:
    outside(path, "UPDATE appends SET conditions = CAST(x'5bff5d' AS TEXT) WHERE last = 6")
    with pytest.raises(StoreCorrupt, match="the append from 6 to 6 cannot be decoded"):
        what_if(spark, str(path), Query.all())
    ran = cli("audit", str(path), "--what-if", Query.all().to_json())
    assert ran.code == 4
    assert [violation["kind"] for violation in ran.lines[0]["violations"]] == ["record"]
    assert "what_if" not in ran.lines[0]


def test_what_if_refuses_a_boundary_that_grows_beyond_the_limits(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "many.db")
    with fencepost.open(path, record_conditions=True) as store:
        items = [QueryItem(tags={f"{name}:{number}"}) for name in "abc" for number in range(20)]
        store.append([Event("A")], AppendCondition(Query(items)))
    with pytest.raises(InvalidInput, match=r"boundary: for the append from 1 to 1, items: 1001 items"):
        what_if(spark, path, Query.of(tags={"a:*", "b:*", "c:*"}))


def test_what_was_not_recorded_is_not_called_sound(cli: Cli, spark: SparkSession, path: Path) -> None:
    assert cli("audit", str(path)).lines[0]["unchecked"] == []
    assert "Sound: all 9 recorded conditions held" in " ".join(cli("audit", str(path), "--table").out.split())
    with fencepost.open(path) as store:  # without recording
        store.append([Event("Noted")] * 2)
    (said,) = cli("audit", str(path)).lines
    assert said["unchecked"] == ["the conditions of 2 events, which were not recorded"]
    shown = " ".join(cli("audit", str(path), "--table").out.split())
    assert "Sound:" not in shown
    assert "Not checked: the conditions of 2 events" in shown


def test_what_if_takes_a_function_of_the_recorded_append(spark: SparkSession, path: Path) -> None:
    def only_late(append: RecordedAppend) -> Query | None:
        return Query.of(tags={"wallet:a"}) | Query.of(tags={"wallet:b"}) if append.first > 7 else None

    found = what_if(spark, str(path), only_late)
    assert (found.decisions, found.guarded, found.conflicts) == (9, 2, 2)
    assert {(row["first"], row["conflict"]) for row in found.refused.collect()} == {(8, 7), (9, 8)}
    with pytest.raises(InvalidInput, match="boundary"):
        what_if(spark, str(path), "wallet:*")  # type: ignore[arg-type]


def test_shapes_leave_the_names_of_things_out() -> None:
    assert shape_of(Query.all()) == "everything"
    assert shape_of(Query.of(types={"A"}, tags={"w:1", "w:2"})) == "A [w:*]"
    assert shape_of(Query.of(tags={"w:1"}) | Query.of(tags={"w:2"})) == "* [w:*]"
    append = RecordedAppend(1, 1, f"[{AppendCondition(Query.of(tags={'w:1', 'w:2', 'o:1'})).to_json()}]")
    assert filled(Query.of(tags={"w:*", "o:*", "x"}), append) == Query.of(tags={"w:1", "o:1", "x"}) | Query.of(
        tags={"w:2", "o:1", "x"}
    )


def test_the_command_names_violations_and_exits_with_4(cli: Cli, spark: SparkSession, path: Path) -> None:
    plant(path, 5, '["wallet:a"]')
    shown = cli("audit", str(path), "--table", "--top", "3", "--what-if", Query.all().to_json())
    assert shown.code == 4
    text = " ".join(shown.out.split())
    assert "condition at position 7" in text
    assert "Not sound: 1 violations are named" in text
    assert "The busiest boundaries" in text
    assert "Under that boundary 6 of 9 decisions would have conflicted" in text  # each payment was 2 behind
    assert spark.range(1).count() == 1  # the command has left it running


def test_the_command_says_what_is_wrong_before_spark_starts(cli: Cli) -> None:
    ran = cli("audit", "nowhere.db")
    assert ran.code == 3
    assert "there is no such store" in ran.err
    assert cli("audit", "nowhere.db", "--what-if", "{").code == 2
