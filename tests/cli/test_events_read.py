"""`read`, `tail` and `head`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

import fencepost
from fencepost import Event, Query

from .conftest import Cli, Ran


def positions(ran: Ran) -> list[int]:
    assert ran.code == 0, ran.err
    return [line["position"] for line in ran.lines]


def test_read_prints_an_event_with_everything_that_it_has(cli: Cli, wallets: str) -> None:
    first = cli("read", wallets, "--limit", "1").lines[0]
    assert first.pop("recorded_at").endswith("Z")
    assert first == {
        "position": 1,
        "type": "WalletOpened",
        "tags": ["owner:ada", "wallet:w1"],
        "data": {"owner": "Ada"},
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [1, 2, 3, 4]),
        (("--tag", "wallet:w1"), [1, 2, 4]),
        (("--tag", "wallet:w1", "--tag", "owner:ada"), [1]),
        (("--type", "MoneyDeposited", "--type", "MoneyWithdrawn"), [2, 4]),
        (("--type", "WalletOpened", "--tag", "wallet:w2"), [3]),
        (("--tag", "wallet:nobody"), []),
        (("--after", "2"), [3, 4]),
        (("--up-to", "2"), [1, 2]),
        (("--after", "1", "--up-to", "3"), [2, 3]),
        (("--limit", "2"), [1, 2]),
        (("--backwards",), [4, 3, 2, 1]),
        (("--backwards", "--limit", "1", "--tag", "wallet:w2"), [3]),
        (("--query", (Query.of(tags={"owner:ada"}) | Query.of(types={"MoneyWithdrawn"})).to_json()), [1, 4]),
    ],
)
def test_read_prints_the_events_that_are_asked_for(
    cli: Cli, wallets: str, options: tuple[str, ...], expected: list[int]
) -> None:
    assert positions(cli("read", wallets, *options)) == expected


def test_read_takes_a_query_or_its_parts_but_not_both(cli: Cli, wallets: str) -> None:
    ran = cli("read", wallets, "--tag", "wallet:w1", "--query", Query.all().to_json())
    assert ran.code == 2
    assert "--query is the complete query" in ran.err


def test_what_read_prints_append_accepts(cli: Cli, wallets: str, tmp_path: os.PathLike[str]) -> None:
    copy = os.path.join(tmp_path, "copy.db")
    cli("init", copy)
    cli("append", copy, given=cli("read", wallets, "--after", "1").out)
    with fencepost.open(wallets) as one, fencepost.open(copy) as other:
        assert [event.event for event in other.read()] == [event.event for event in one.read(after=1)]


@pytest.mark.parametrize("command", ["read", "tail", "head", "stats", "verify", "append"])
def test_a_store_that_is_not_there_is_not_made(cli: Cli, path: str, command: str) -> None:
    ran = cli(command, path, given='{"type": "T"}')
    assert (ran.code, ran.out) == (3, "")
    assert f"fencepost init {path}" in ran.err
    assert not os.path.exists(path)


def test_head_is_a_bare_number(cli: Cli, wallets: str) -> None:
    assert cli("head", wallets).out == "4\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-n", "2"), [3, 4]),
        (("-n", "0"), []),
        ((), [1, 2, 3, 4]),
        (("-n", "2", "--tag", "wallet:w1"), [2, 4]),
        (("--after", "2"), [3, 4]),
    ],
)
def test_tail_prints_the_last_events_in_order(
    cli: Cli, wallets: str, options: tuple[str, ...], expected: list[int]
) -> None:
    assert positions(cli("tail", wallets, *options)) == expected


def test_tail_follows_what_another_process_appends(
    process: Callable[..., subprocess.Popen[bytes]], wallets: str
) -> None:
    with process("tail", wallets, "-f", "-n", "1", "--tag", "wallet:w1") as tail, fencepost.open(wallets) as store:
        assert tail.stdout is not None
        assert b'"position":4' in tail.stdout.readline()
        store.append([Event("Elsewhere", tags={"wallet:w2"}), Event("Here", tags={"wallet:w1"})])
        assert b'"position":6,"type":"Here"' in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)


def test_tail_follows_from_a_position_on(process: Callable[..., subprocess.Popen[bytes]], wallets: str) -> None:
    with process("tail", wallets, "-f", "--after", "3") as tail:
        assert tail.stdout is not None
        assert b'"position":4' in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)


def test_control_c_ends_tail_without_a_traceback(process: Callable[..., subprocess.Popen[bytes]], wallets: str) -> None:
    with process("tail", wallets, "-f") as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate()
    assert (tail.returncode, err) == (130, b"")


def test_a_reader_that_goes_away_ends_read_without_a_traceback(
    process: Callable[..., subprocess.Popen[bytes]], path: str
) -> None:
    with fencepost.open(path) as store:
        # More than a pipe holds, so that the command has to notice.
        store.append([Event("Padding", data=b"x" * 1_000)] * 500)
    with process("read", path) as read:
        assert read.stdout is not None
        assert read.stderr is not None
        read.stdout.readline()
        read.stdout.close()
        err = read.stderr.read()
    assert (read.returncode, err) == (141, b"")
