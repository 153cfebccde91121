"""Typed tables: a view for each event class, in which no event is missing."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark import purses
from tests.spark.purses import Added, Moved, Opened, Ticked

import fencepost
from fencepost import Event, InvalidInput
from fencepost.decisions import EventUnreadable, encode
from fencepost.decisions.events import declaration_of
from fencepost.spark import tables
from fencepost.spark.typed import view_name

NEWEST = {"event_version": "2"}
UNFIT = [
    Event("Added", data=b"not JSON", metadata=NEWEST),
    Event("Added", data=b"\xff\xfe", metadata=NEWEST),
    Event("Added", data=b'{"purse_id": "a", "amount": "much"}', metadata=NEWEST),
    Event("Added", data=b'{"purse_id": "a"}', metadata=NEWEST),
    Event("Added", data=b'{"purse_id": "a", "amount": 1}', metadata={"event_version": "3"}),
    Event("Added", data=b'{"purse_id": "a", "money": 1}', tags={"purse_id:a"}),  # version 1, which cannot be upgraded
]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "log.db")
    with fencepost.open(path) as store:
        store.append([encode(Opened("a", "Ada")), encode(Opened("b", "Bob \u00e4\n"))])
        store.append([encode(Added("a", 250)), encode(Added("a", 50, note="gift")), encode(Added("b", 7))])
        store.append([Event("Added", data=b'{"purse_id": "b", "amount": 3}', tags={"purse_id:b", "region:eu"})])
        store.append([encode(Moved("a", "b", 20))])
        store.append(UNFIT)
    return path


def test_sql_on_the_fields_of_events(spark: SparkSession, log: str) -> None:
    made = tables(spark, log, purses)
    assert {"opened", "added", "moved", "ticked"} <= made.keys()
    sums = spark.sql("SELECT purse_id, sum(amount) AS total FROM added WHERE unreadable IS NULL GROUP BY purse_id")
    assert {row["purse_id"]: row["total"] for row in sums.collect()} == {"a": 300, "b": 307}
    joined = spark.sql("SELECT owner, note FROM added JOIN opened USING (purse_id) WHERE note <> ''").collect()
    assert [tuple(row) for row in joined] == [("Ada", "gift")]


def test_each_row_is_what_the_class_decodes(spark: SparkSession, log: str) -> None:
    """Older versions included; an event that the class cannot decode has a row with its data."""
    made = tables(spark, log, [Opened, Added, Moved])
    with fencepost.open(log) as store:
        for name, cls in (("opened", Opened), ("added", Added), ("moved", Moved)):
            declaration: Any = declaration_of(cls)
            rows = {row["position"]: row for row in made[name].collect()}
            stored = [event for event in store.read() if event.type == declaration.type]
            assert list(rows) == [event.position for event in stored] or sorted(rows) == [e.position for e in stored]
            for event in stored:
                row = rows[event.position]
                assert (set(row["tags"]), row["metadata"]) == (event.tags, dict(event.metadata))
                try:
                    decoded = declaration.decode(event)
                except EventUnreadable:
                    assert row["unreadable"]
                    assert all(row[field] is None for field in declaration.fields)
                else:
                    assert row["unreadable"] is None
                    assert {field: row[field] for field in declaration.fields} == {
                        field: getattr(decoded, field) for field in declaration.fields
                    }


def test_a_tag_that_is_not_a_field_is_a_list(spark: SparkSession, log: str) -> None:
    (row,) = tables(spark, log, [Moved])["moved"].collect()
    assert (row["from_purse_id"], row["to_purse_id"], sorted(row["purse_id"])) == ("a", "b", ["a", "b"])


def test_all_tables_are_one_prefix(spark: SparkSession, log: str) -> None:
    made = tables(spark, log, [Opened, Added])
    with fencepost.open(log) as store:
        store.append([encode(Opened("c", "Cleo")), encode(Added("c", 1))])
    assert (made["opened"].count(), made["added"].where("purse_id = 'c'").count()) == (2, 0)
    assert tables(spark, log, [Opened])["opened"].count() == 3


def test_a_type_without_events_is_an_empty_table(spark: SparkSession, log: str) -> None:
    assert tables(spark, log, [Ticked])["ticked"].collect() == []


def test_a_module_without_events_is_refused(spark: SparkSession, log: str) -> None:
    with pytest.raises(InvalidInput, match="no event classes"):
        tables(spark, log, ModuleType("nothing"))


def test_names_of_views() -> None:
    assert view_name("MoneyDeposited") == "money_deposited"
    assert view_name("wallet.opened") == "wallet_opened"
