"""`verify`, `salvage` and `backup`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fencepost

from .conftest import Cli


def spoil(path: str) -> None:
    """Flip a bit of the page that holds all events."""
    content = bytearray(Path(path).read_bytes())
    content[4096 + 2_000] ^= 1
    Path(path).write_bytes(content)


def test_verify_finds_nothing_in_a_sound_store(cli: Cli, wallets: str) -> None:
    ran = cli("verify", wallets)
    assert ran.code == 0
    assert (ran.lines[0]["events"], ran.lines[0]["problems"]) == (4, [])


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_verify_says_what_is_wrong_where(cli: Cli, wallets: str, form: str) -> None:
    spoil(wallets)
    ran = cli("verify", wallets, form)
    assert ran.code == 4
    assert "page 2: does not agree with its checksum" in " ".join(ran.out.split())


def test_verify_says_which_part_is_damaged_and_which_events_are_intact(cli: Cli, wallets: str) -> None:
    spoil(wallets)
    (said,) = cli("verify", wallets).lines
    assert (said["sound"], said["damaged"], said["whole"]) == (False, ["log"], [])
    assert "`fencepost salvage` copies those on undamaged pages" in " ".join(
        cli("verify", wallets, "--table").out.split()
    )


def test_verify_of_a_file_that_is_cut_off_is_a_report(cli: Cli, wallets: str) -> None:
    os.truncate(wallets, 5_000)
    ran = cli("verify", wallets)
    assert ran.code == 4
    assert "page 1" in ran.lines[0]["problems"][0]


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_salvage_saves_what_is_sound_and_says_what_is_lost(cli: Cli, wallets: str, tmp_path: Path, form: str) -> None:
    saved = str(tmp_path / "saved.db")
    spoil(wallets)
    ran = cli("salvage", wallets, saved, form)
    assert ran.code == 4
    if form == "--json":
        (said,) = ran.lines
        assert (said["head"], said["events"], said["lost"]) == (4, 0, [[1, 4]])
    else:
        assert "Lost: 4 events, at 1 to 4." in ran.out
    assert cli("verify", saved).code == 0
    assert [line["type"] for line in cli("read", saved).lines][1] == "fencepost.lost"


def test_salvage_of_a_sound_store_loses_nothing(cli: Cli, wallets: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "saved.db")
    assert cli("salvage", wallets, saved).code == 0
    assert cli("read", saved).out == cli("read", wallets).out
    assert cli("salvage", wallets, saved).code == 2


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


@pytest.mark.parametrize(
    "arguments",
    [("init", "memory:"), ("verify", "memory:"), ("backup", "memory:", "copy.db"), ("salvage", "memory:", "copy.db")],
)
def test_what_is_about_files_says_so(cli: Cli, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "SQLite files" in ran.err
    assert not os.path.exists("memory:")
