"""`verify` and `backup`."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

import fencepost

from .conftest import Cli


def test_verify_finds_nothing_in_a_sound_store(cli: Cli, wallets: str) -> None:
    ran = cli("verify", wallets)
    assert ran.code == 0
    assert (ran.lines[0]["events"], ran.lines[0]["problems"]) == (4, [])


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_verify_says_what_is_wrong_where(cli: Cli, wallets: str, form: str) -> None:
    connection = apsw.Connection(wallets)
    connection.execute("UPDATE events SET data = x'00' WHERE position = 2")
    connection.close()
    ran = cli("verify", wallets, form)
    assert ran.code == 4
    assert "event 2" in ran.out
    assert "checksum" in ran.out


def test_backup_is_a_store_of_the_same_events(cli: Cli, wallets: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    assert cli("backup", wallets, copy).lines == [{"to": copy, "head": 4}]
    with fencepost.open(wallets) as one, fencepost.open(copy) as other:
        assert list(one.read()) == list(other.read())


def test_backup_overwrites_nothing(cli: Cli, wallets: str, tmp_path: Path) -> None:
    taken = tmp_path / "letter.txt"
    taken.write_text("Dear Ada")
    ran = cli("backup", wallets, str(taken))
    assert ran.code == 2
    assert "name a new file" in ran.err
    assert taken.read_text() == "Dear Ada"


@pytest.mark.parametrize("arguments", [("init", "memory:"), ("verify", "memory:"), ("backup", "memory:", "copy.db")])
def test_what_is_about_files_says_so(cli: Cli, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "SQLite files" in ran.err
    assert not os.path.exists("memory:")
