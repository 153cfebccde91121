"""A view in a table of PostgreSQL: the same view, for whoever reads SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, TimestampType
from tests.spark.purses import Added, Diary, Moved, Opened, Purse
from tests.spark.test_view import append, rows
from tests.support.postgres import PostgresServer

from fencepost import InvalidInput, StoreUnavailable
from fencepost.decisions import encode
from fencepost.spark import View, fold
from fencepost.spark.view.table import TablePlace, adapted


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "purses.db")
    append(path, Opened("a", "Ada"), Added("a", 700, "first"), encode(Opened("b", "Bob")), Moved("a", "b", 200))
    return path


def at(server: PostgresServer, table: str) -> str:
    url = server.url()
    return f"{url}{'&' if '?' in url else '?'}table={table}"


def selected(server: PostgresServer, statement: str) -> list[Any]:
    with psycopg.connect(server.url()) as connection:
        return connection.execute(statement).fetchall()


def test_a_table_is_the_fold_with_its_position_and_goes_on(
    spark: SparkSession, server: PostgresServer, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(Purse, by="purse_id", at=at(server, "purses"), store=log, spark=spark)
    assert view.position == 0
    assert view.refresh().rebuilt
    last = append(log, Added("b", 1), Opened("c", "Cy"))
    assert (view.refresh().changed, view.position) == (2, last)
    assert selected(server, "SELECT purse_id, owner, amount, position FROM purses ORDER BY purse_id") == [
        ("a", "Ada", 500, 4),
        ("b", "Bob", 201, 5),
        ("c", "Cy", 0, 6),
    ]
    assert rows(view.latest()) == rows(fold(spark, log, Purse, by="purse_id"))
    assert rows(view.at(4)) == rows(fold(spark, log, Purse, by="purse_id", upto=4))

    append(log, Added("a", 1))
    before = selected(server, "SELECT * FROM purses ORDER BY purse_id")
    merge = TablePlace._merge

    def fail_late(self: TablePlace, connection: Any, *rest: Any) -> None:
        merge(self, connection, *rest)
        connection.execute("SELECT 1 / 0")

    monkeypatch.setattr(TablePlace, "_merge", fail_late)
    with pytest.raises(StoreUnavailable, match="division by zero"):
        view.refresh()
    assert selected(server, "SELECT * FROM purses ORDER BY purse_id") == before
    assert view.position == last


def test_rich_columns_have_types_of_postgres(spark: SparkSession, server: PostgresServer, log: str) -> None:
    view = View(Diary, by="purse_id", at=at(server, "public.diaries"), store=log, spark=spark)
    view.refresh()
    append(log, Added("a", 3, "more"))
    view.refresh()
    assert selected(
        server, "SELECT notes, mood, entries->0->>'note', by_type, last_at IS NULL FROM diaries ORDER BY purse_id"
    ) == [
        (["2", "first", "more"], "busy", "first", {"Moved": 1, "Opened": 1}, False),
        ([], "busy", None, {"Moved": 1, "Opened": 1}, True),
    ]
    assert rows(view.latest()) == rows(fold(spark, log, Diary, by="purse_id"))


def test_times_are_the_same_wherever_they_are_in_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives them without a zone, in that of the driver's process."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        local, right = datetime(2026, 11, 16, 6, 22), datetime(2026, 11, 16, 11, 22, tzinfo=timezone.utc)
        text = "2026-11-16T11:22:00+00:00"
        at = TimestampType()
        assert adapted(local, at) == right
        assert adapted([local, None], ArrayType(at)) == [right, None]
        assert adapted({"a": local}, MapType(StringType(), at)).obj == {"a": text}
        assert adapted({local: [local]}, MapType(at, ArrayType(at))).obj == {text: [text]}
        assert adapted([Row(at=local)], ArrayType(StructType().add("at", at))).obj == [{"at": text}]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_reader_whose_view_was_refreshed_meanwhile_is_told(
    spark: SparkSession, server: PostgresServer, log: str
) -> None:
    view = View(Purse, by="purse_id", at=at(server, "raced"), store=log, spark=spark)
    view.refresh()
    frame: DataFrame = view.latest()
    append(log, Added("a", 1))
    view.refresh()
    with pytest.raises(Exception, match="refreshed meanwhile"):
        frame.collect()


def test_a_table_must_be_named_and_reachable(server: PostgresServer, log: str) -> None:
    with pytest.raises(InvalidInput, match="the table is missing"):
        View(Purse, by="purse_id", at=server.url())
    gone = View(Purse, by="purse_id", at="postgresql://ada:hunter2@127.0.0.1:1/x?table=y", store=log)
    with pytest.raises(StoreUnavailable) as caught:
        gone.refresh()
    assert "hunter2" not in str(caught.value)
    view = View(Purse, by="purse_id", at=at(server, "locked"), store=log)
    with view._place.refreshing(), pytest.raises(StoreUnavailable, match="another process"):
        view.refresh()
