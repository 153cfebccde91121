"""The examples for schedulers: their commands exist, their order is right, and their script does what it says."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from examples.wallet.domain import DepositMade, WalletOpened
from pyspark.sql import SparkSession

import fencepost
from fencepost.cli.app import COMMANDS, Commands
from fencepost.decisions import encode

FOLDER = Path(__file__).parents[2] / "examples" / "orchestration"
CRON_LINE = re.compile(r"((?:[\d*/,-]+\s+){5})(.+)")
CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


class StubOperator:
    """In place of Airflow's BashOperator: keeps what it was given, and `>>`."""

    made: dict[str, StubOperator]

    def __init__(self, *, task_id: str, bash_command: str, retries: int | None = None) -> None:
        self.command = bash_command
        self.after: list[StubOperator] = []
        StubOperator.made[task_id] = self

    def __rshift__(self, later: StubOperator | list[StubOperator]) -> None:
        for each in later if isinstance(later, list) else [later]:
            each.after.append(self)


class StubDAG:
    """In place of Airflow's DAG."""

    def __init__(self, dag_id: str, **options: Any) -> None:
        self.dag_id, self.options = dag_id, options

    def __enter__(self) -> StubDAG:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> StubDAG:
    """The DAG, loaded with stubs of the two modules of Airflow 3 that it imports."""
    StubOperator.made = {}
    sdk, bash = ModuleType("airflow.sdk"), ModuleType("airflow.providers.standard.operators.bash")
    sdk.DAG = StubDAG  # type: ignore[attr-defined]
    bash.BashOperator = StubOperator  # type: ignore[attr-defined]
    for stub in (sdk, bash):
        monkeypatch.setitem(sys.modules, stub.__name__, stub)
    loaded: StubDAG = runpy.run_path(str(FOLDER / "wallets_dag.py"))["dag"]
    return loaded


def check_command(command: str) -> None:
    """The command is one of ours with options that it has, or it runs the script of the example."""
    program, *words = shlex.split(command)
    if program == "python":
        assert (FOLDER / Path(words[0]).name).is_file()
        assert len(words) == 3
        return
    assert program == "fencepost"
    found: click.Command | None = Commands()
    context = click.Context(found)
    while isinstance(found, click.Group):
        name = words.pop(0)
        found = found.get_command(context, name)
    assert found is not None
    found.make_context("fencepost", words, parent=context)  # parses the arguments; raises for a wrong one


def test_each_line_for_cron_has_a_schedule_and_a_command_that_exists() -> None:
    lines = (FOLDER / "wallets.crontab").read_text().splitlines()
    jobs = [line for line in lines if line and not line.startswith("#") and not re.match(r"[A-Z]+=", line)]
    values = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    assert len(jobs) == 4
    for job in jobs:
        found = CRON_LINE.fullmatch(job)
        assert found is not None, job
        for field, (least, most) in zip(found[1].split(), CRON_RANGES, strict=True):
            assert all(least <= int(number) <= most for number in re.findall(r"\d+", field.split("/")[0]))
        check_command(re.sub(r"\$([A-Z]+)", lambda name: values[name[1]], found[2]))


def test_the_dag_exports_first_and_audits_what_was_verified(dag: StubDAG) -> None:
    tasks = StubOperator.made
    assert (dag.dag_id, dag.options["catchup"], dag.options["max_active_runs"]) == ("wallets", False, 1)
    names = {task: name for name, task in tasks.items()}
    assert {name: [names[each] for each in task.after] for name, task in tasks.items()} == {
        "export": [],
        "refresh": ["export"],
        "verify": ["export"],
        "audit": ["verify"],
    }
    for task in tasks.values():
        check_command(task.command)


def test_a_wrong_command_would_be_noticed() -> None:
    assert "lake" in COMMANDS
    with pytest.raises(click.UsageError, match="--unknown"):
        check_command("fencepost lake verify /data/lake --unknown")


def test_the_script_refreshes_a_view_and_can_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    store, folder = str(tmp_path / "wallet.db"), str(tmp_path / "balances")
    with fencepost.open(store) as opened:
        opened.append([encode(WalletOpened("w1", "Ada", 10)), encode(DepositMade("w1", "d1", 5))])
    refresh = runpy.run_path(str(FOLDER / "refresh_balances.py"))["refresh"]
    assert refresh(spark, store, folder) == "balances cover position 2; 1 wallets have changed"
    assert refresh(spark, store, folder) == "balances cover position 2; 0 wallets have changed"
