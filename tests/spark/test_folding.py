"""A fold on Spark is the fold in the process, key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import LongType
from tests.spark import purses
from tests.spark.purses import (
    Added,
    Broken,
    Diary,
    Entry,
    Huge,
    Mood,
    Moved,
    Numbered,
    Opened,
    Paid,
    Pair,
    Purse,
    Ticked,
    Vague,
)

import fencepost
import fencepost.spark
from fencepost import Event, InvalidInput
from fencepost.decisions import DefinitionError, EventUnreadable, Projection, Tag, encode, on, project
from fencepost.model import MAX_BUCKETS
from fencepost.spark import fold, lake
from fencepost.spark.folding import Folder, Plan
from fencepost.spark.folding.states import conversion


def old_added(purse_id: str, coins: int) -> Event:
    """As version 1 has written it."""
    data = json.dumps({"purse_id": purse_id, "amount": coins}).encode()
    return Event("Added", data=data, tags={f"purse_id:{purse_id}"})


def by_key(rows: Sequence[Row], name: str = "purse_id") -> dict[Any, Row]:
    found = {row[name]: row for row in rows}
    assert len(found) == len(rows), "one row for each key"
    return found


@pytest.fixture
def purses_log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    with fencepost.open(path) as store:
        store.append([encode(Opened("a", "Ada")), encode(Added("a", 700)), encode(Opened("b", "Bob"))])
        store.append([encode(Moved("a", "b", 200)), old_added("b", 3), Event("Unrelated", tags={"purse_id:a"})])
        store.append([encode(Added("c", 5), metadata={"trace": "t"})])
    return path


ids = st.sampled_from(["a", "b", "ü:é", "", 'q"\\'])
amounts = st.integers(-(2**40), 2**40)
happenings = st.one_of(
    st.builds(lambda id, owner: encode(Opened(id, owner)), ids, st.text(max_size=5)),
    st.builds(lambda id, amount, note: encode(Added(id, amount, note)), ids, amounts, st.text(max_size=3)),
    st.builds(lambda one, other, amount: encode(Moved(one, other, amount)), ids, ids, amounts),
    st.builds(lambda id, coins: old_added(id, coins), ids, st.integers(0, 9)),
    st.builds(lambda: Event("Unrelated", tags={"purse_id:a", "x"})),
)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(logs=st.lists(st.lists(happenings, max_size=25), min_size=25, max_size=40), data=st.data())
def test_every_row_is_what_the_process_folds(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, logs: list[list[Event]], data: st.DataObject
) -> None:
    """Many logs in one store, each with purses of its own, so that a job of Spark proves all of them."""
    path = str(tmp_path_factory.mktemp("logs") / "log.db")
    with fencepost.open(path) as store:
        for number, log in enumerate(logs):
            if log:
                store.append([_of_log(event, number) for event in log])
        up_to = data.draw(st.one_of(st.none(), st.integers(0, store.head() + 1)))
        after = data.draw(st.sampled_from([0, 0, 7]))
        stored = list(store.read(after=after, up_to=up_to))
        head = store.head()
    for projection in (Purse, Diary):
        expected: dict[str, Projection] = {}
        for event in stored:
            for scope in projection.definition.scopes_of(event):
                instance = expected.setdefault(scope["purse_id"], projection(**scope))
                assert instance.apply(event)
        rows = by_key(fold(spark, path, projection, by="purse_id", after=after, up_to=up_to).collect())
        assert rows.keys() == expected.keys()
        for key, instance in expected.items():
            assert _state(rows[key]) == _shown(instance), key
            assert rows[key]["up_to"] == min(head, head if up_to is None else up_to)


def _of_log(event: Event, number: int) -> Event:
    def renamed(text: str) -> str:
        return text.replace("purse_id:", f"purse_id:{number}-")

    fields = json.loads(event.data or b"{}")
    for name in ("purse_id", "from_purse_id", "to_purse_id"):
        if name in fields:
            fields[name] = f"{number}-{fields[name]}"
    data = json.dumps(fields).encode()
    return Event(event.type, data=data, tags=map(renamed, event.tags), metadata=event.metadata)


def _state(row: Row) -> dict[str, Any]:
    state = {name: value for name, value in row.asDict(recursive=True).items() if name not in ("purse_id", "up_to")}
    if state.get("last_at") is not None:
        state["last_at"] = state["last_at"].replace(tzinfo=timezone.utc)
    return state


def _shown(instance: Any) -> dict[str, Any]:
    """The state as rows show it."""
    if isinstance(instance, Purse):
        state = {"owner": instance.owner, "amount": instance.amount, "highest": instance.highest}
        return {**state, "position": instance.position}
    assert isinstance(instance, Diary)
    return {
        "entries": [{"amount": entry.amount, "note": entry.note} for entry in instance.entries],
        "notes": sorted(instance.notes),
        "by_type": instance.by_type,
        "mood": instance.mood.value,
        "last_at": instance.last_at,
        "share": instance.share,
        "position": instance.position,
    }


def test_columns_have_the_types_that_the_class_says(spark: SparkSession, purses_log: str) -> None:
    assert fold(spark, purses_log, Diary, by="purse_id").schema.simpleString() == (
        "struct<purse_id:string,entries:array<struct<amount:bigint,note:string>>,notes:array<string>,"
        "by_type:map<string,bigint>,mood:string,last_at:timestamp,share:double,position:bigint,up_to:bigint>"
    )


def test_a_lake_and_a_frame_are_folded_like_their_store(spark: SparkSession, purses_log: str, tmp_path: Path) -> None:
    lake.export(spark, purses_log, str(tmp_path / "lake"))
    rows = fold(spark, purses_log, Purse, by="purse_id").orderBy("purse_id").collect()
    assert [(row["purse_id"], row["amount"], row["position"], row["up_to"]) for row in rows] == [
        ("a", 500, 4, 7),
        ("b", 500, 5, 7),
        ("c", 5, 7, 7),
    ]
    frame = fencepost.spark.events(spark, purses_log)
    for store in (f"lake:{tmp_path / 'lake'}", frame):
        assert fold(spark, store, Purse, by="purse_id").orderBy("purse_id").collect() == rows


def test_keys_are_all_that_is_read_and_folded(spark: SparkSession, purses_log: str) -> None:
    folded = by_key(fold(spark, purses_log, Purse, by="purse_id", keys=["b", "absent"]).collect())
    assert {key: row["amount"] for key, row in folded.items()} == {"b": 500}
    with fencepost.open(purses_log) as store:
        assert folded["b"]["amount"] == project(store, Purse("b")).amount


@pytest.mark.parametrize("absent", [MAX_BUCKETS - 1, MAX_BUCKETS])
def test_more_keys_than_one_query_takes_are_folded_all_the_same(
    spark: SparkSession, purses_log: str, absent: int
) -> None:
    keys = ["b", *(f"absent{number}" for number in range(absent))]
    (row,) = fold(spark, purses_log, Purse, by="purse_id", keys=keys).collect()
    assert (row["purse_id"], row["amount"]) == ("b", 500)


@pytest.mark.parametrize("keys", ["b", []])
def test_what_is_no_list_of_keys_is_refused_for_every_store(spark: SparkSession, purses_log: str, keys: Any) -> None:
    for store in (purses_log, fencepost.spark.events(spark, purses_log)):
        with pytest.raises(InvalidInput, match="keys: a list of at least 1 key"):
            fold(spark, store, Purse, by="purse_id", keys=keys)


def test_a_key_is_of_the_type_that_the_projection_is_scoped_by(spark: SparkSession, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([encode(Ticked(7)), encode(Ticked(7)), encode(Ticked(12))])
    for name in ("n", "number"):  # the parameter, or its tag
        rows = fold(spark, empty, Numbered, by=name).collect()
        assert {(row["n"], row["count"], row["double"]) for row in rows} == {(7, 2, 14), (12, 1, 24)}


def test_a_projection_of_two_tags_has_a_row_for_each_pair(spark: SparkSession, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([encode(Paid("a", "may", 1)), encode(Paid("a", "june", 2)), encode(Paid("a", "may", 4))])
    rows = fold(spark, empty, Pair, by=["purse_id", "month"]).collect()
    assert {(row["purse_id"], row["month"], row["paid"]) for row in rows} == {("a", "may", 5), ("a", "june", 2)}


def test_a_schema_names_columns_that_follow_from_nothing(spark: SparkSession, purses_log: str) -> None:
    (row,) = fold(spark, purses_log, Vague, by="purse_id", keys=["c"], schema="anything decimal(20,0)").collect()
    assert row.asDict().keys() == {"purse_id", "anything", "position", "up_to"}
    assert row["anything"] == 5
    frame = fold(spark, purses_log, Purse, by="purse_id", schema="amount long, is_poor boolean")
    assert {row["purse_id"]: row["is_poor"] for row in frame.collect()} == {"a": True, "b": True, "c": True}


def test_nothing_folds_into_no_rows(spark: SparkSession, empty: str) -> None:
    assert fold(spark, empty, Purse, by="purse_id").collect() == []


@pytest.fixture
def unreadable(empty: str) -> str:
    with fencepost.open(empty) as store:
        store.append([encode(Added("a", 1)), encode(Added("b", 2))])
        store.append([Event("Added", data=b'{"amount": "many"}', tags={"purse_id:b"})])
        store.append([encode(Added("b", 4)), encode(Added("a", 8))])
    return empty


def test_an_event_that_does_not_fit_fails_the_fold_in_one_sentence(spark: SparkSession, unreadable: str) -> None:
    with pytest.raises(PythonException) as caught:
        fold(spark, unreadable, Purse, by="purse_id").collect()
    check(caught.value, "'Added' at position 3", "does not fit Added")


def test_an_event_that_does_not_fit_can_be_skipped(spark: SparkSession, unreadable: str) -> None:
    rows = by_key(fold(spark, unreadable, Purse, by="purse_id", on_error="skip").collect())
    assert {key: (row["amount"], row["position"]) for key, row in rows.items()} == {"a": (9, 5), "b": (6, 4)}


def test_an_event_that_does_not_fit_can_be_told_in_a_column(spark: SparkSession, unreadable: str) -> None:
    rows = by_key(fold(spark, unreadable, Purse, by="purse_id", on_error="column").collect())
    assert rows["a"]["error"] is None
    assert (rows["b"]["amount"], rows["b"]["position"]) == (2, 2), "as it was before the event"
    assert "'Added' at position 3" in rows["b"]["error"]


def folded_here(projection: type[Projection], events: Sequence[Event], **options: Any) -> list[dict[str, Any]]:
    """What a worker does with the events of one purse, without Spark."""
    plan = Plan.of(projection, "purse_id", **options)
    rows = [
        {"key_purse_id": "a", "position": number, "type": event.type, "data": event.data}
        | {"version": event.metadata.get("event_version")}
        for number, event in enumerate(events, start=1)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS)
    return [row for made in Folder(plan, LongType())(iter([batch])) for row in made.to_pylist()]


ROWS = pa.schema(
    {
        "key_purse_id": pa.string(),
        "position": pa.int64(),
        "type": pa.string(),
        "data": pa.binary(),
        "version": pa.string(),
    }
)


def test_a_newer_version_than_the_class_is_not_read_as_an_older_one() -> None:
    with pytest.raises(EventUnreadable, match="'Added' at position 1: it has version 3"):
        folded_here(Purse, [Event("Added", data=b"{}", metadata={"event_version": "3"})])


def test_a_mistake_in_a_handler_names_the_event_and_is_never_skipped() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        folded_here(Broken, [encode(Added("a", 1)), encode(Added("a", 13))], on_error="skip")
    (note,) = caught.value.__notes__
    assert "Broken._ (" in note
    assert note.endswith("of event 'Added' at position 2")


def test_a_value_that_its_column_cannot_hold_is_named() -> None:
    events = [encode(Added("a", 1)), encode(Added("a", 1))]
    with pytest.raises(InvalidInput, match=r"'amount'.*purse_id 'a'.*schema="):
        folded_here(Huge, events)
    (row,) = folded_here(Huge, events, schema="amount decimal(38,0)")
    assert int(row["amount"]) == 2**80


@pytest.mark.parametrize(
    ("values", "type", "expected"),
    [
        ({2, 10, 1}, pa.list_(pa.int64()), [1, 2, 10]),
        ({"it's", "a", "B"}, pa.list_(pa.string()), ["B", "a", "it's"]),
        ({Mood.CALM, Mood.BUSY}, pa.list_(pa.string()), ["busy", "calm"]),
        ({frozenset({2, 10}), frozenset({3})}, pa.list_(pa.list_(pa.int64())), [[2, 10], [3]]),
        (
            {Entry(2, "b"), Entry(1, "a")},
            pa.list_(pa.struct({"amount": pa.int64(), "note": pa.string()})),
            [{"amount": 1, "note": "a"}, {"amount": 2, "note": "b"}],
        ),
    ],
)
def test_a_set_is_a_sorted_list(values: Any, type: pa.DataType, expected: list[Any]) -> None:
    assert conversion(type)(values) == expected


def test_a_tag_that_does_not_fit_the_scope_is_named() -> None:
    schema = pa.schema([ROWS.field(0).with_name("key_n"), *list(ROWS)[1:]])
    batch = pa.RecordBatch.from_pylist([{"key_n": "a", "position": 1, "type": "Ticked", "data": b"{}"}], schema=schema)
    work = Folder(Plan.of(Numbered, "n"), LongType())(iter([batch]))
    with pytest.raises(InvalidInput, match="tag 'number:a'"):
        list(work)


def check(error: BaseException, *words: str) -> None:
    text = str(error)
    for word in words:
        assert word in text
    assert len(text.splitlines()) <= 6
    assert not re.search(r"^\s+at [\w.$]+\(", text, re.MULTILINE), "a Java stack trace"
    assert "Traceback" not in text


def test_what_cannot_be_folded_is_refused_before_anything_runs() -> None:
    class Local(Projection):
        purse_id: Tag
        amount: int = 0

        @on
        def _(self, event: Added) -> None: ...

    with pytest.raises(DefinitionError, match="inside a function"):
        Plan.of(Local, "purse_id")
    with pytest.raises(DefinitionError, match=r"Vague.anything: no column type follows from no annotation.*schema="):
        Plan.of(Vague, "purse_id")
    with pytest.raises(InvalidInput, match="by: Purse is scoped by purse_id, not by 'wallet'"):
        Plan.of(Purse, "wallet")
    with pytest.raises(InvalidInput, match=r"by: Pair is scoped by month as well"):
        Plan.of(Pair, "purse_id")
    with pytest.raises(InvalidInput, match="on_error: one of fail, skip, column"):
        Plan.of(Purse, "purse_id", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"'amonut'.*no such field.*amount"):
        Plan.of(Purse, "purse_id", schema="amonut long")
    with pytest.raises(InvalidInput, match="schema: not a schema"):
        Plan.of(Purse, "purse_id", schema="amount very long")
    with pytest.raises(DefinitionError, match="projection class"):
        Plan.of(purses, "purse_id")  # type: ignore[arg-type]


def test_names_of_columns_that_folds_and_views_have_themselves_are_refused() -> None:
    for scoped, name in ((purses.Until, "up_to"), (purses.Tax, "state"), (purses.Failed, "error")):
        with pytest.raises(InvalidInput, match=f"parameter '{name}'"):
            Plan.of(scoped, name, on_error="column")
    with pytest.raises(InvalidInput, match="column 'Up_to'"):
        Plan.of(purses.Failed, "error")
    with pytest.raises(InvalidInput, match="column 'key_purse_id'"):
        Plan.of(purses.Keyed, "purse_id")


def test_a_frame_without_a_column_that_is_needed_is_refused(spark: SparkSession, purses_log: str) -> None:
    frame = fencepost.spark.events(spark, purses_log, columns="position long, type string, tags array<string>")
    with pytest.raises(InvalidInput, match="'data' is missing"):
        fold(spark, frame, Purse, by="purse_id")
