"""The pipeline to copy, and what runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from examples.wallet import pipeline as wallets
from examples.wallet.domain import Balance, DepositMade, MoneyTransferred, WalletOpened, WithdrawalMade
from pyspark.sql import SparkSession

import fencepost
from fencepost import InvalidInput, Query, StoreError
from fencepost.decisions import encode, project
from fencepost.spark import pipeline


@pytest.fixture(autouse=True)
def _keep_settings(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def append(path: str, *events: object) -> None:
    with fencepost.open(path) as store:
        store.append([encode(event) for event in events])


def test_the_wallet_pipeline_brings_everything_up_to_date_and_does_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, folder = str(tmp_path / "wallet.db"), str(tmp_path / "out")
    append(store, *[WalletOpened(name, name.title(), 5_000) for name in ("ada", "bob", "cy")])
    append(store, DepositMade("ada", "d1", 70), WithdrawalMade("bob", "x1", 30))
    append(store, MoneyTransferred("t1", "ada", "bob", 2_000), MoneyTransferred("t2", "bob", "cy", 1_900))
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # a few rows in four parts would be four times the files
    seen: list[pipeline.QueryProgress] = []
    ran = pipeline.run(wallets, spark, store, folder, watch=lambda run: seen.extend(run.queries))
    assert [told.name for told in ran.queries] == ["lake", "balances", "movements", "flows", "flags"]
    assert [told.running for told in ran.queries] == [False] * 5
    assert (ran.queries[0].rows, ran.queries[0].lag) == (1, 0)  # a row for each batch
    assert seen
    append(store, DepositMade("cy", "d2", 5), MoneyTransferred("t3", "cy", "ada", 10))
    pipeline.run(wallets, spark, store, folder)

    shown = {name: frame.collect() for name, frame in pipeline.results(wallets, spark, folder).items()}
    with fencepost.open(store) as opened:
        assert {row["wallet_id"]: row["amount"] for row in shown["balances"]} == {
            name: project(opened, Balance(name)).amount for name in ("ada", "bob", "cy")
        }
        flags = list(opened.read(Query.of(types={"TransferFlagged"})))
    totals: Counter[str] = Counter()
    for row in shown["flows"]:
        totals[row["type"]] += row["came"] - row["went"]
    assert totals == {"WalletOpened": 15_000, "DepositMade": 75, "WithdrawalMade": -30, "MoneyTransferred": 0}
    assert [msgspec.json.decode(flag.data) for flag in flags] == [
        {"transfer_id": "t2", "wallet_id": "bob", "amount": 1_900, "received_by": "t1"}
    ]


def made(name: str, **functions: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(functions)
    return module


@pytest.mark.parametrize("early", [True, False])
def test_enough_is_an_end_once_all_queries_run_and_an_interruption_before(
    spark: SparkSession, empty: str, tmp_path: Path, early: bool
) -> None:
    append(empty, DepositMade("ada", "d1", 1))
    all_run: list[bool] = []

    def queries(spark: SparkSession, store: str, folder: str, trigger: Any) -> Iterator[Any]:
        for name in ("one", "two"):
            events = spark.readStream.format("fencepost").option("store", store).load()
            writer = events.writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}")
            yield writer.queryName(name).trigger(**trigger).start()
        all_run.append(True)

    def enough(run: pipeline.Run) -> None:
        if early or all_run:
            raise KeyboardInterrupt

    def run() -> pipeline.Run:
        module = made("counting", pipeline=queries)
        return pipeline.run(module, spark, empty, str(tmp_path / "out"), every="1 second", watch=enough)

    if early:
        with pytest.raises(KeyboardInterrupt):
            run()
    else:
        assert [told.rows for told in run().queries] == [1, 1]
    assert spark.streams.active == []


def test_a_query_that_fails_is_named_in_one_sentence(spark: SparkSession, empty: str, tmp_path: Path) -> None:
    append(empty, DepositMade("ada", "d1", 1))

    def failing(spark: SparkSession, store: str, folder: str, trigger: dict[str, Any]) -> Any:
        frame = spark.readStream.format("fencepost").option("store", store).load()
        writer = frame.selectExpr("type", "'x' AS kind").writeStream.queryName("copies").format("fencepost")
        yield writer.option("store", store).option("checkpointLocation", folder).trigger(**trigger).start()

    with pytest.raises(StoreError, match=r"query 'copies' failed: .*column 'kind': events have no such column"):
        pipeline.run(made("copying", pipeline=failing), spark, empty, str(tmp_path / "out"))


def test_a_mistake_in_the_module_is_told_with_its_place(empty: str, tmp_path: Path) -> None:
    def broken(spark: Any, store: str, folder: str, trigger: dict[str, Any]) -> Any:
        yield {}["absent"]

    with pytest.raises(InvalidInput, match=r"broken failed: KeyError: 'absent' \(.*test_pipeline.py, line \d+\)"):
        pipeline.run(made("broken", pipeline=broken), None, empty, str(tmp_path / "out"))  # type: ignore[arg-type]


def test_a_module_is_found_by_name_or_file_and_must_have_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert pipeline.load("examples.wallet.pipeline") is wallets
    (tmp_path / "my_pipeline.py").write_text("def pipeline(spark, store, folder, trigger): return []\n")
    assert pipeline.load(str(tmp_path / "my_pipeline.py")).pipeline(None, "", "", {}) == []
    (tmp_path / "no_pipeline.py").write_text("x = 1\n")
    (tmp_path / "bad_pipeline.py").write_text("import fencepost\n1 / 0\n")
    for name, problem in [
        ("no_pipeline", "has no function pipeline"),
        ("bad_pipeline", r"cannot be imported: ZeroDivisionError: .*bad_pipeline.py, line 2"),
        ("no.such.module", "No module named 'no'"),
        (str(tmp_path / "absent.py"), "no such file"),
    ]:
        with pytest.raises(InvalidInput, match=problem):
            pipeline.load(name)


class BusyQuery:
    """A query on a store that others append to all the time: there is always a next batch."""

    isActive = True
    recentProgress: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.status = {"isTriggerActive": True, "isDataAvailable": True, "message": "Processing new data"}
        self.lastProgress: object = None


def test_the_next_query_is_started_although_the_one_before_never_catches_up(spark: SparkSession) -> None:
    query: Any = BusyQuery()
    running = pipeline.Run(spark, [pipeline.QueryProgress("busy", query)])
    looks: list[int] = []

    def watch(run: pipeline.Run) -> None:
        looks.append(1)
        query.lastProgress = "a batch" if len(looks) == 2 else None if len(looks) < 2 else query.lastProgress
        assert len(looks) < 10, "it starves"

    pipeline._follow(running, watch, once=False)
    assert len(looks) == 2, "it has waited for the first batch"
