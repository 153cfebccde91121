"""A read model whose past is folded on Spark: its consumer goes on at exactly that position, while writers append."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.consumers.conftest import place  # noqa: F401  a fixture
from tests.consumers.places import Place, counting, eventually
from tests.spark.purses import Added, Broken, Diary, Moved, Numbered, Opened, Paid, Pair, Purse, Ticked

import fencepost
from fencepost import EventStore, InvalidInput
from fencepost.consumers import CommandRefused, ReadModel, start, verify
from fencepost.decisions import Projection, encode
from fencepost.spark import rebuild
from fencepost.spark.rebuilding import Builder


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:  # noqa: F811
    with place.open() as store:
        yield store


def fill(store: EventStore, count: int) -> int:
    events = [
        encode(Moved(f"p{n % 7}", f"p{n % 5}", n % 11)) if n % 3 else encode(Added(f"p{n % 9}", n))
        for n in range(count)
    ]
    return store.append(events).last


def model_of(place: Place, projection: type[Projection], *, table: str = "purses") -> ReadModel:  # noqa: F811
    return ReadModel(projection, into=place.into, table=table, lease_s=2)


class Writer:
    """Appends all the time, in a thread, and leaves some of the machine to Spark."""

    def __init__(self, place: Place) -> None:  # noqa: F811
        self._place = place
        self._thread = threading.Thread(target=self._write)
        self._stopped = False
        self.appended = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped = True
        self._thread.join()

    def _write(self) -> None:
        with self._place.open() as store:
            while not self._stopped:
                fill(store, 5)
                self.appended += 5
                sleep(0.05)


def test_the_consumer_goes_on_where_spark_ended_while_writers_append(
    spark: SparkSession,
    place: Place,  # noqa: F811
    store: EventStore,
) -> None:
    old, new = model_of(place, Purse), model_of(place, Diary)
    fill(store, 2_000)
    with start(store, old), Writer(place) as writer:
        old.wait_for(store, 2_000, timeout_s=60)
        position = rebuild(spark, new, place.address)
        assert position >= 2_000
        assert place.checkpoint(new.name) == position
        before = writer.appended
        eventually(lambda: writer.appended > before, "an append after the rebuild")
        with start(store, new):
            eventually(lambda: new.position() > position and "mood" in columns(place), "the new version")
    with start(store, new):
        eventually(lambda: new.position() >= last_event(store), "the end")
    assert verify(new, store) is None


def columns(place: Place) -> list[str]:  # noqa: F811
    connection = place.connect()
    try:
        return [each[0] for each in connection.execute("SELECT * FROM purses").description]
    finally:
        connection.close()


def last_event(store: EventStore) -> int:
    return max(event.position for event in store.read(backwards=True, limit=50) if "." not in event.type)


@pytest.mark.parametrize("projection", [Purse, Numbered, Pair])
def test_the_table_is_that_of_a_fold_in_the_process(
    spark: SparkSession, tmp_path: Path, projection: type[Projection]
) -> None:
    path, into = str(tmp_path / "log.db"), str(tmp_path / "views.db")
    with fencepost.open(path) as store:
        fill(store, 50)
        store.append([encode(Opened("p1", "Ada")), encode(Ticked(7)), encode(Ticked(7)), encode(Paid("p1", "may", 3))])
        model = ReadModel(projection, into=into, table="rows")
        head = store.head()
        assert rebuild(spark, model, path) >= head
        assert verify(model, store) is None


def test_up_to_bounds_the_rebuild_and_the_consumer_does_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    path, into = str(tmp_path / "log.db"), str(tmp_path / "views.db")
    with fencepost.open(path) as store:
        fill(store, 60)
        model = ReadModel(Purse, into=into, table="rows")
        rows: list[int] = []
        assert rebuild(spark, model, path, up_to=40, on_progress=rows.append) == 40
        assert rebuild(spark, model, path, up_to=30) == 40  # it has reached more already
        with counting(store) as handled, start(store, model):
            model.wait_for(store, 60)
        assert handled() == 20
        assert verify(model, store) is None


def test_a_rebuild_that_fails_half_way_leaves_nothing_that_the_consumer_could_go_on_from(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, into = str(tmp_path / "log.db"), str(tmp_path / "views.db")

    def fail(self: Builder, position: int) -> None:
        raise OSError("the machine is gone")

    with fencepost.open(path) as store:
        last = fill(store, 60)
        model = ReadModel(Purse, into=into, table="rows", lease_s=1)
        with monkeypatch.context() as patched:
            patched.setattr(Builder, "finish", fail)
            with pytest.raises(OSError, match="gone"):
                rebuild(spark, model, path)
        with counting(store) as handled, start(store, model):
            model.wait_for(store, last)
        assert handled() == 60
        assert verify(model, store) is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda spark, path, into: rebuild(spark, "balances", path), InvalidInput, "model: a ReadModel is needed"),
        (
            lambda spark, path, into: rebuild(spark, ReadModel(Broken, into=into, table="b"), path),
            PythonException,
            "ZeroDivisionError",
        ),
    ],
)
def test_a_mistake_is_named(
    spark: SparkSession, tmp_path: Path, call: Callable[..., Any], error: type[Exception], message: str
) -> None:
    path = str(tmp_path / "log.db")
    with fencepost.open(path) as store:
        store.append([encode(Added("p1", 13))])
    with pytest.raises(error, match=message):
        call(spark, path, str(tmp_path / "views.db"))


def test_a_published_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, into = str(tmp_path / "log.db"), str(tmp_path / "views.db")
    with fencepost.open(path) as store:
        model = ReadModel(Purse, into=into, table="rows", lease_s=1)
        with start(store, model):
            model.wait_for(store, fill(store, 10))
        with pytest.raises(CommandRefused, match="is published"):
            rebuild(spark, model, path)
