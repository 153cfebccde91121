"""One clear error on the driver, which names what is wrong; and nothing written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.conftest import stored
from tests.sqlite.outside import outside

import fencepost
from fencepost import AppendCondition, Event, FencepostError, FormatUnsupported, InvalidInput, Query
from fencepost.core.redaction import has_secret
from fencepost.spark.basics.options import parse
from fencepost.spark.sink.rows import STAGED, staged
from fencepost.spark.source.batch import FencepostSource

ANY_ERROR = (AnalysisException, PythonException, StreamingQueryException)


def check(error: BaseException, *words: str) -> None:
    """The words are there, in a message that a person can read."""
    first = str(error).split("=== Streaming Query ===")[0]
    for word in words:
        assert word in first
    assert len(first.splitlines()) <= 6
    assert not re.search(r"^\s+at [\w.$]+\(", first, re.MULTILINE), "a Java stack trace"
    assert "Traceback" not in first


READS: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({"stroe": "x"}, ("stroe", "not known", "partitions")),
    ({}, ("'store'", "missing")),
    ({"store": ""}, ("'store'", "empty")),
    ({"store": "/no/such/folder/log.db"}, ("/no/such/folder/log.db", "there is no such store")),
    ({"store": "{log}", "query": "{"}, ("'query'", "not valid JSON")),
    ({"store": "{log}", "query": '{"items": []}'}, ("'query'", "at least 1 item")),
    ({"store": "{log}", "query": '{"item": []}'}, ("'query'", "unknown name 'item'")),
    ({"store": "{log}", "after": "-1"}, ("'after'", "-1 is not between")),
    ({"store": "{log}", "after": "many"}, ("'after'", "'many'")),
    ({"store": "{log}", "after": "head"}, ("'after'", "'head' is for streams")),
    ({"store": "{log}", "upTo": str(2**96)}, ("'upTo'", "is not between")),
    ({"store": "{log}", "maxEventsPerTrigger": "0"}, ("'maxEventsPerTrigger'", "'0'")),
    ({"store": "{log}", "partitions": "0"}, ("'partitions'", "'0'")),
    ({"store": "{log}", "data": "json"}, ("'data'", "binary, string, variant")),
    ({"store": "{log}", "pushFilters": "perhaps"}, ("'pushFilters'", "true or false")),
    ({"store": "memory:"}, ("store in memory",)),
    ({"store": "gopher://x/y"}, ("gopher",)),
    ({"store": "{log}", "storeFrom": "env:X"}, ("given twice",)),
    ({"storeFrom": "env:NO_SUCH_VARIABLE"}, ("NO_SUCH_VARIABLE",)),
    ({"storeFrom": "file:/no/such/secret"}, ("/no/such/secret",)),
    ({"storeFrom": "hunter2"}, ("file:PATH or env:NAME",)),
    ({"store": "postgresql://ada:hunter2@localhost/x"}, ("password", "storeFrom")),
    ({"store": "lake:/no/such/lake"}, ("/no/such/lake", "there is no such lake")),
]


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark's own processes do to themselves when they report an error must not stay in this one."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def plan(options: dict[str, str]) -> None:
    source = FencepostSource(options)
    source.reader(source.schema()).partitions()


@pytest.mark.parametrize(("options", "words"), READS, ids=[str(options) for options, _ in READS])
def test_a_wrong_option_of_a_read(log: str, options: dict[str, str], words: tuple[str, ...]) -> None:
    """What Spark does on the driver, without Spark; the next test shows what comes of it there."""
    given = {name: value.replace("{log}", log) for name, value in options.items()}
    with pytest.raises(FencepostError) as caught:
        plan(given)
    check(caught.value, *words)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stroe": "x"}, ("stroe", "not known", "partitions")),
        ({"store": "/no/such/folder/log.db"}, ("/no/such/folder/log.db", "there is no such store")),
        ({"store": "postgresql://ada:hunter2@localhost/x"}, ("password", "storeFrom")),
    ],
)
def test_an_error_of_a_read_on_spark(spark: SparkSession, options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(ANY_ERROR) as caught:
        spark.read.format("fencepost").options(**options).load().collect()
    check(caught.value, *words)
    assert "hunter2" not in str(caught.value)


COLUMNS: list[tuple[StructType, tuple[str, ...]]] = [
    (StructType().add("positon", "long"), ("'positon'", "no such column", "recorded_at")),
    (StructType().add("position", "integer"), ("'position'", "bigint or decimal(38,0)", "int")),
    (StructType().add("tags", "string"), ("'tags'", "array<string>")),
    (StructType().add("recorded_at", "string"), ("'recorded_at'", "timestamp")),
]


@pytest.mark.parametrize(("schema", "words"), COLUMNS, ids=[schema.simpleString() for schema, _ in COLUMNS])
def test_a_wrong_column_of_a_read(log: str, schema: StructType, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        FencepostSource({"store": log}).reader(schema)
    check(caught.value, *words)


def test_a_wrong_column_of_a_read_on_spark(spark: SparkSession, log: str) -> None:
    with pytest.raises(ANY_ERROR) as caught:
        spark.read.format("fencepost").schema("positon long").option("store", log).load().collect()
    check(caught.value, "'positon'", "no such column", "recorded_at")


def test_a_schema_and_an_option_that_contradict_each_other(log: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        FencepostSource({"store": log, "data": "binary"}).reader(StructType().add("data", "string"))
    check(caught.value, "'data'", "string", "binary")


def test_data_that_is_no_text_names_its_event(spark: SparkSession, empty: str) -> None:
    with fencepost.open(empty) as store:
        store.append([Event("Fine", data=b"{}"), Event("Picture", data=b"\xff\xfe")])
    with pytest.raises(ANY_ERROR) as caught:
        spark.read.format("fencepost").schema("data string").option("store", empty).load().collect()
    check(caught.value, "position 2", "'Picture'", "'binary'")


def test_a_store_that_is_newer_than_the_library(log: str) -> None:
    outside(Path(log), "PRAGMA user_version = 99")
    with pytest.raises(FormatUnsupported) as caught:
        plan({"store": log})
    check(caught.value, "format 99", "upgrade Fencepost")


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(b"no database, but long enough to be taken for one at the first look" * 20)
    with pytest.raises(FormatUnsupported) as caught:
        plan({"store": str(path)})
    check(caught.value, "not a Fencepost store")


def frame_of(spark: SparkSession, **columns: str) -> DataFrame:
    """Ten rows of these SQL expressions, with a type unless one is given."""
    chosen = {"type": "'T'", **columns}
    return spark.range(0, 10, numPartitions=1).selectExpr(
        *[f"{expression} AS {name}" for name, expression in chosen.items()]
    )


WRITES: list[tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = [
    ({"kind": "'x'"}, {}, ("'kind'", "no such column")),
    ({"tags": "array('')"}, {}, ("'tags'", "0 bytes", "row 1")),
    ({"condition": "'{}'"}, {}, ("'rejected'", "missing")),
    ({}, {"store": "/no/such/log.db"}, ("/no/such/log.db",)),
]


@pytest.mark.parametrize(("columns", "options", "words"), WRITES, ids=[str(words) for *_, words in WRITES])
def test_a_wrong_write_stores_nothing(
    spark: SparkSession, empty: str, columns: dict[str, str], options: dict[str, str], words: tuple[str, ...]
) -> None:
    writer = frame_of(spark, **columns).write.format("fencepost").options(**{"store": empty, **options})
    with pytest.raises(ANY_ERROR) as caught:
        writer.mode("append").save()
    check(caught.value, *words)
    assert stored(empty) == []


def test_a_log_cannot_be_overwritten(spark: SparkSession, log: str) -> None:
    before = stored(log)
    with pytest.raises(ANY_ERROR) as caught:
        frame_of(spark).write.format("fencepost").option("store", log).mode("overwrite").save()
    check(caught.value, "only grows", "append")
    assert stored(log) == before


SCHEMAS: list[tuple[StructType, dict[str, str], tuple[str, ...]]] = [
    (StructType().add("data", "string"), {}, ("'type'", "missing")),
    (StructType().add("type", "integer"), {}, ("'type'", "string", "int")),
    (StructType().add("type", "string").add("position", "long"), {}, ("'position'", "drop the column")),
    (StructType().add("type", "string").add("tags", "string"), {}, ("'tags'", "array<string>")),
    (StructType().add("type", "string").add("data", "integer"), {}, ("'data'", "binary or string", "int")),
    (StructType().add("type", "string"), {"condition": "nope"}, ("'condition'", "not valid JSON")),
    (StructType().add("type", "string"), {"writeId": ""}, ("'writeId'", "empty")),
    (StructType().add("type", "string"), {"store": "lake:/tmp/x"}, ("lake",)),
    (
        StructType().add("type", "string").add("condition", "string"),
        {"rejected": "/tmp/r", "condition": AppendCondition(Query.all()).to_json()},
        ("'condition'", "leave out one of them"),
    ),
]


@pytest.mark.parametrize(("schema", "options", "words"), SCHEMAS, ids=[str(words) for *_, words in SCHEMAS])
def test_a_wrong_write(schema: StructType, options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        FencepostSource({"store": "x.db", **options}).writer(schema, False)
    check(caught.value, *words)


ROWS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"type": None}, ("'type'", "null", "row 8")),
    ({"type": ""}, ("'type'", "0 bytes", "row 8")),
    ({"tags": ["x"] * 3 + [f"t{number}" for number in range(20)]}, ("'tags'", "21", "row 8")),
    ({"data": b"x" * 1_048_577}, ("'data'", "1048577 bytes", "row 8")),
    ({"id": "not-a-uuid"}, ("'id'", "not-a-uuid", "row 8")),
    ({"metadata": [("name", "x" * 20_000)]}, ("'metadata'", "the limit is", "row 8")),
    ({"condition": "{}"}, ("'condition'", "fail_if_events_match", "row 8")),
    (
        {"condition": '{"fail_if_events_match": {"items": []}}'},
        ("condition.fail_if_events_match.items'", "at least 1 item", "row 8"),
    ),
]


@pytest.mark.parametrize(("row", "words"), ROWS, ids=[str(words) for _, words in ROWS])
def test_a_row_that_is_no_event_is_named(row: dict[str, Any], words: tuple[str, ...]) -> None:
    batch = pa.RecordBatch.from_pylist([{"type": "Fine"}, {"type": "T", **row}], schema=STAGED)
    with pytest.raises(InvalidInput) as caught:
        staged(batch, 6)
    check(caught.value, *words)


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"store": "/no/such/log.db"}, None, ("/no/such/log.db", "there is no such store")),
        ({}, "positon long", ("'positon'", "no such column")),
    ],
)
def test_a_wrong_stream(
    spark: SparkSession, log: str, tmp_path: Path, options: dict[str, str], schema: str | None, words: tuple[str, ...]
) -> None:
    def run() -> None:
        reader = spark.readStream.format("fencepost").options(**{"store": log, **options})
        frame = (reader.schema(schema) if schema else reader).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(ANY_ERROR) as caught:
        run()
    check(caught.value, *words)


def test_names_of_options_are_read_as_spark_reads_them(log: str) -> None:
    assert parse({"STORE": log, "upto": "5", "MaxEventsPerTrigger": "7"}).max_events == 7


def test_what_spark_itself_tells_the_sink_of_a_stream_is_no_mistake(log: str) -> None:
    assert parse({"store": log, "queryname": "copies", "checkpointlocation": "/c"}).checkpoint_location == "/c"


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("postgresql://ada:x@db/wallet", True),
        ("postgresql://ada@db/wallet?password=x", True),
        ("postgresql://ada@db/wallet?sslpassword=x", True),
        ("postgresql://ada:a#b@db/wallet", True),
        ("postgresql://ada:a?b@db/wallet", True),
        ("postgresql://ada:a/b@db/wallet", True),
        ("postgresql://ada@db/wallet?p%61ssword=x", True),
        ("host=db user=ada password=x", True),
        ("postgresql://ada@db/wallet?passfile=/run/secrets/pgpass", False),
        ("wallet.db", False),
    ],
)
def test_an_address_with_a_password_is_known(address: str, secret: bool) -> None:
    assert has_secret(address) == secret
    if secret:
        with pytest.raises(InvalidInput, match="password"):
            parse({"store": address})
