"""`fencepost lake`: the same as the functions, with exit codes and words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.spark.conftest import stored

import fencepost
from fencepost import Event
from fencepost.spark.lake_engine.files import lake_at

pytestmark = pytest.mark.usefixtures("spark")  # which the command finds, uses, and leaves running


def test_export_verify_and_restore(cli: Cli, log: str, tmp_path: Path, spark: SparkSession) -> None:
    folder, copy = str(tmp_path / "lake"), str(tmp_path / "copy.db")
    head = len(stored(log))
    exported = cli("lake", "export", log, folder, "--chunk", "200", "--up-to", "450")
    assert exported.lines == [{"folder": folder, "files": 3, "events": 450, "up_to": 450}]
    assert cli("lake", "export", log, folder, "--chunk", "200").lines[0]["up_to"] == head
    assert cli("lake", "verify", folder).lines == [{"problems": []}]
    assert cli("lake", "restore", folder, copy).lines == [{"head": head}]
    assert stored(copy) == stored(log)
    assert spark.range(1).count() == 1


def test_follow_and_compact(cli: Cli, log: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    head = len(stored(log))
    for up_to in (100, 200, 300):
        cli("lake", "export", log, folder, "--chunk", "1000", "--up-to", str(up_to))
    followed = cli("lake", "follow", log, folder, "--once", "--chunk", "1000")
    assert followed.lines == [{"folder": folder, "up_to": head}]
    compacted = cli("lake", "compact", folder, "--chunk", "300", "--retain-hours", "0")
    assert compacted.lines == [{"folder": folder, "files_before": 4, "files": 2}]
    assert cli("lake", "verify", folder).lines == [{"problems": []}]


def test_what_is_said_to_people(cli: Cli, log: str, tmp_path: Path) -> None:
    folder, copy = str(tmp_path / "lake"), str(tmp_path / "copy.db")
    assert "is complete up to position 511: 511 events were added" in " ".join(
        cli("lake", "export", log, folder, "--table").out.split()
    )
    assert "Sound" in cli("lake", "verify", folder, "--table").out
    assert "up to position 511" in cli("lake", "restore", folder, copy, "--table").out


def test_an_unsound_lake_is_exit_code_4(cli: Cli, log: str, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    cli("lake", "export", log, str(folder))
    (folder / lake_at(folder).files[0].path).unlink()
    ran = cli("lake", "verify", str(folder))
    assert ran.code == 4
    assert "missing" in ran.lines[0]["problems"][0]
    ran = cli("lake", "restore", str(folder), str(tmp_path / "copy.db"))
    assert ran.code == 3
    assert "missing" in ran.err


def test_a_store_that_holds_something_else_is_refused(cli: Cli, log: str, tmp_path: Path) -> None:
    folder, other = str(tmp_path / "lake"), str(tmp_path / "other.db")
    cli("lake", "export", log, folder)
    with fencepost.open(other) as store:
        store.append([Event("Other")])
    ran = cli("lake", "restore", folder, other)
    assert ran.code == 2
    assert "another log" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["export", "nowhere.db", "lake"], 3, "no such store"),
        (["verify", "nowhere"], 3, "there is no such lake"),
        (["restore", "nowhere", "new.db"], 3, "there is no such lake"),
        (["export", "nowhere.db", "lake", "--chunk", "0"], 2, "--chunk"),
    ],
)
def test_mistakes(
    cli: Cli, arguments: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("lake", *arguments)
    assert ran.code == code
    assert said in ran.err + ran.out
    assert ran.err.count("\n") <= 1
    assert list(tmp_path.iterdir()) == []
