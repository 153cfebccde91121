"""The wallet pipeline as a project of Spark Declarative Pipelines, run by its own command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples.wallet.domain import DepositMade, MoneyTransferred, WalletOpened
from tests.spark.slow.conftest import SOURCES, environment

import fencepost
from fencepost import Query
from fencepost.decisions import encode

pytestmark = pytest.mark.timeout(900)  # several JVMs start in it, which takes long on a busy machine

PROJECT = Path(SOURCES).parent / "examples" / "declarative"

LOOK = """
import json, sys
import fencepost.spark
spark = fencepost.spark.session("local[2]", config=json.loads(sys.argv[1]))
flows = {row["type"]: row["came"] - row["went"] for row in spark.table("daily_flows").collect()}
balances = {row["wallet_id"]: row["amount"] for row in spark.table("balances").collect()}
print(json.dumps({"flows": flows, "balances": balances, "movements": spark.table("movements").count()}))
"""


def catalogue(folder: Path) -> dict[str, str]:
    """Tables that are known to the next run as well."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
    }


def run(folder: Path, store: str) -> None:
    conf = [word for name, value in catalogue(folder).items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-pipelines"), "run", *conf],
        cwd=folder / "project",
        env={**environment(folder), "WALLET_STORE": store},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # PySpark 4.3 completes the run, and then fails to understand the answer that says so.
    assert "Run is COMPLETED" in done.stderr + done.stdout, (done.stderr + done.stdout)[-3_000:]
    assert done.returncode == 0 or "UNKNOWN_RESPONSE" in done.stderr + done.stdout, done.stdout[-3_000:]


def test_the_declared_pipeline_completes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    store = str(tmp_path / "wallet.db")
    with fencepost.open(store) as opened:
        opened.append([encode(WalletOpened(name, name, 5_000)) for name in ("ada", "bob", "cy")])
        opened.append([encode(MoneyTransferred("t1", "ada", "bob", 2_000))])
        opened.append([encode(MoneyTransferred("t2", "bob", "cy", 1_900))])
    shutil.copytree(PROJECT, tmp_path / "project")
    spec = tmp_path / "project" / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/wallet-pipeline", str(tmp_path)))
    run(tmp_path, store)
    with fencepost.open(store) as opened:
        opened.append([encode(DepositMade("ada", "d1", 7))])
    run(tmp_path, store)

    looked = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps(catalogue(tmp_path))],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert looked.returncode == 0, looked.stderr[-3_000:]
    assert json.loads(looked.stdout.splitlines()[-1]) == {
        "flows": {"WalletOpened": 15_000, "MoneyTransferred": 0, "DepositMade": 7},
        "balances": {"ada": 3_007, "bob": 5_100, "cy": 6_900},
        "movements": 8,
    }
    with fencepost.open(store) as opened:
        flags = [json.loads(event.data) for event in opened.read(Query.of(types={"TransferFlagged"}))]
    assert flags == [{"transfer_id": "t2", "wallet_id": "bob", "amount": 1_900, "received_by": "t1"}]
