"""What people see: the same commands with their output on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable

import pytest

import fencepost
from fencepost import Event

from .conftest import COMMAND, ENVIRONMENT, Cli

Show = Callable[..., str]


@pytest.fixture
def show() -> Show:
    """The text on a terminal of 120 columns, without colours."""

    def run(*arguments: str) -> str:
        master, slave = pty.openpty()
        with subprocess.Popen([*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=ENVIRONMENT):
            os.close(slave)
            shown = b""
            try:
                while part := os.read(master, 65_536):
                    shown += part
            except OSError:
                pass  # the terminal has been closed by the command's end
        os.close(master)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())

    return run


def test_read_shows_a_table_with_its_head(show: Show, wallets: str) -> None:
    shown = show("read", wallets)
    assert re.search(r"position +recorded \(UTC\) +type +tags +data", shown)
    assert re.search(
        r"1 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +WalletOpened +owner:ada wallet:w1 +{\"owner\": \"Ada\"}", shown
    )
    assert "4 events; complete up to position 4" in shown


def test_the_columns_of_later_pages_stand_under_those_of_the_first(
    cli: Cli, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.events.PAGE_EVENTS", 3)
    with fencepost.open(path) as store:
        store.append([Event("Short", tags={"t:1"}, data=b"D")] * 4)
        store.append([Event("AMuchLongerTypeThanBefore", tags={"t:1"}, data=b"D")])
    shown = cli("read", path, "--table").out
    rows = [line for line in shown.splitlines() if "t:1" in line]
    assert len(rows) == 5
    assert len({row.index("t:1") for row in rows}) == 1
    assert shown.count("position  ") == 1


def test_what_is_stored_cannot_steer_the_terminal(cli: Cli, path: str) -> None:
    with fencepost.open(path) as store:
        store.append([Event("\x1b[2JType", tags={"[red]tag[/red]", "line\nfeed"}, data=b"\x1b]0;title\x07")])
    for command in ("read", "stats", "tail"):
        shown = cli(command, path, "--table").out
        assert "\x1b[2J" not in shown
        assert "\\x1b[2JType" in shown
        assert "[red]tag[/red]" in shown


def test_an_append_is_confirmed_in_a_sentence(cli: Cli, wallets: str) -> None:
    two = '{"type": "T"}\n{"type": "T"}'
    assert cli("append", wallets, "--table", given=two).out == "Stored at positions 5 to 6.\n"


def test_stats_shows_types_tags_and_growth(show: Show, wallets: str) -> None:
    shown = show("stats", wallets)
    assert "4 events, head 4, 61 B of data" in shown
    assert re.search(r"WalletOpened +2 +50\.0% +33 B +3", shown)
    assert re.search(r"wallet:w1 +3 +75\.0%", shown)
    assert "█" in shown


def test_check_says_what_would_happen(show: Show, wallets: str) -> None:
    assert "Refused: this event matches and is after 0." in show("check", wallets, "--tag", "wallet:w1")
    assert "Holds: no event after 0 matches, up to position 4" in show("check", wallets, "--tag", "wallet:w3")


def test_verify_and_backup_end_with_a_sentence(show: Show, wallets: str, tmp_path: os.PathLike[str]) -> None:
    assert "Sound: 4 events" in show("verify", wallets)
    assert "is complete up to position 4" in show("backup", wallets, os.path.join(tmp_path, "copy.db"))


def test_copy_export_and_import_show_how_far_they_are(show: Show, wallets: str, tmp_path: os.PathLike[str]) -> None:
    lines = os.path.join(tmp_path, "log.jsonl")
    copied = show("copy", wallets, os.path.join(tmp_path, "copy.db"))
    assert re.search(r"copying .* 4/4", copied)
    assert re.search(r"verifying .* 4/4", copied)
    assert "Copied 4 events, up to position 4; both logs have the digest" in copied
    assert re.search(r"exporting .* 4/4", show("export", wallets, lines))
    assert "exporting" not in show("export", wallets)
    assert "Imported 4 events; the head of the store is 4." in show("import", os.path.join(tmp_path, "new.db"), lines)


def test_a_narrow_terminal_leaves_out_columns_and_cuts_neither_position_nor_type(
    cli: Cli, wallets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert re.search(r"2 +\S+ \S+ +MoneyDeposited +wallet:w1 *\n", cli("read", wallets, "--table").out)
    monkeypatch.setenv("COLUMNS", "40")
    assert re.search(r"2 +MoneyDeposited +wallet:w1 *\n", cli("read", wallets, "--table").out)
