"""How a run ends, whatever happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import errors
from fencepost.cli import app, exits

from .conftest import ENVIRONMENT, Cli


@pytest.mark.parametrize(
    "arguments",
    [
        ("read",),
        ("read", "x.db", "--tpye", "T"),
        ("nonsense",),
        ("read", "x.db", "--limit", "none"),
        ("read", "x.db", "--limit", "0"),
        ("read", "x.db", "--after", "-1"),
        ("read", "x.db", "--query", "{}"),
        ("check", "x.db", "--condition", "no JSON"),
        ("read", "gopher://store"),
    ],
)
def test_a_mistake_is_answered_in_one_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("fencepost: ")
    assert ran.err.count("\n") == 1


def test_no_command_at_all_is_answered_with_the_help(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_a_bug_has_an_exit_code_of_its_own(cli: Cli, wallets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(address: str) -> None:
        raise RuntimeError("not thought of")

    monkeypatch.setattr("fencepost.cli.events.open_store", broken)
    ran = cli("head", wallets)
    assert ran.code == exits.BUG
    assert "RuntimeError: not thought of" in ran.err


def test_every_error_has_an_exit_code() -> None:
    def below(kind: type[errors.FencepostError]) -> list[type[errors.FencepostError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    codes = exits.codes()
    kinds = below(errors.FencepostError)[1:]
    assert {kind.__name__ for kind in kinds} >= {"ConditionFailed", "StoreCorrupt", "InvalidInput", "DefinitionError"}
    for kind in kinds:
        assert any(issubclass(kind, known) for known, _ in codes), kind


def test_an_error_cannot_steer_the_terminal(cli: Cli) -> None:
    ran = cli("read", "\x1b[2Jstore.db")
    assert "\x1b" not in ran.err
    assert "\\x1b[2Jstore.db" in ran.err


def test_every_command_has_help(cli: Cli) -> None:
    for name in app.COMMANDS:
        ran = cli(name, "--help")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(f"Usage: fencepost {name}")


def test_help_loads_no_engine_and_no_rich() -> None:
    script = (
        "import sys; from fencepost.cli.app import run; run(['--help']);"
        "print(sorted({'apsw', 'rich', 'asyncio', 'psycopg', 'pyspark'} & sys.modules.keys()), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


def test_a_store_in_a_missing_folder_names_the_folder(cli: Cli, tmp_path: Path) -> None:
    ran = cli("read", str(tmp_path / "missing" / "wallet.db"))
    assert ran.code == 3
    assert f"{tmp_path / 'missing'} does not exist" in ran.err
    assert "fencepost init" not in ran.err
