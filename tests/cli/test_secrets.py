"""No command and no function shows the secret of an address, whatever goes wrong with it."""

from __future__ import annotations

import asyncio
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.decisions.wallets import Balance

import fencepost
from fencepost import Event, FencepostError, aio
from fencepost.core.address import open_engine
from fencepost.engines import postgres
from fencepost.spark import View, place_of
from fencepost.spark.basics import address_of, parse
from fencepost.spark.scanning import scan_of

from .conftest import COMMAND, ENVIRONMENT, Cli

SECRET = "hunter2"
REFUSING = "127.0.0.1:1"  # nothing listens on this port
WAIT = "patience_s=0&connect_timeout=2"

ADDRESSES = [
    # A server that refuses.
    f"postgresql://ada:hunter2@{REFUSING}/wallet?{WAIT}",
    f"postgres://ada:hunter2@{REFUSING}/wallet?schema=eu&{WAIT}",
    f"postgresql://ada:a#hunter2@{REFUSING}/wallet?{WAIT}",
    f"postgresql://ada:a?hunter2@{REFUSING}/wallet?{WAIT}",
    f"postgresql://ada:a:hunter2@{REFUSING}/wallet?{WAIT}",
    f"postgresql://ada:%68unter2@{REFUSING}/wallet?{WAIT}",
    f"postgresql://ada@{REFUSING}/wallet?{WAIT}&password=hunter2",
    f"postgresql://ada@{REFUSING}/wallet?{WAIT}&p%61ssword=hunter2",
    f"postgresql://ada@{REFUSING}/wallet?sslpassword=hunter2&{WAIT}",
    f"postgresql://ada:hunter2@[::1]:1/wallet?{WAIT}",
    # Malformed, as libpq and other libraries quote it.
    f"postgresql://ada:a@hunter2@{REFUSING}/wallet",
    f"postgresql://ada:a/hunter2@{REFUSING}/wallet",
    f"postgresql://ada:12/hunter2@{REFUSING}/wallet",
    f"postgresql://ada:hunter2%zz@{REFUSING}/wallet",
    f"postgresql://ada:hunter2%40{REFUSING}/wallet",
    f"postgresql://ada:hunter2\udcff@{REFUSING}/wallet",
    f"postgresql://ada@{REFUSING}?password=a@hunter2",
    f"postgresql://ada@{REFUSING}/wallet?password=a&hunter2=1",
    f"postgresql://ada@{REFUSING}/wallet?password=%zzhunter2",
    "postgresql://ada:hunter2",
    "postgresql://ada:a@[::1/hunter2",
    f"postgresql:ada:hunter2@{REFUSING}/wallet",
    f"postgresql:/ada:hunter2@{REFUSING}/wallet",
    f"jdbc:postgresql://ada:hunter2@{REFUSING}/wallet",
    f"ada:hunter2@{REFUSING}/wallet",
    "host=127.0.0.1 port=1 password=hunter2",
    "host=127.0.0.1 port=1 password=a hunter2",
    # Other engines.
    "http://ada:hunter2@127.0.0.1:1/store?patience_s=0",
    "https://hunter2@127.0.0.1:1/store?patience_s=0",
    "https://127.0.0.1:1/store?token=hunter2",
    "fdb:description:hunter2@127.0.0.1:4500",
]

COMMANDS: list[tuple[str, ...]] = [
    ("init", "{}"),
    ("append", "{}"),
    ("read", "{}"),
    ("tail", "{}"),
    ("tail", "{}", "-f"),
    ("head", "{}"),
    ("stats", "{}"),
    ("check", "{}", "--type", "T"),
    ("verify", "{}"),
    ("backup", "{}", "copy.db"),
    ("backup", "wallet.db", "{}"),
    ("copy", "{}", "copy.db"),
    ("copy", "wallet.db", "{}"),
    ("export", "{}", "log.jsonl"),
    ("export", "wallet.db", "{}"),
    ("import", "{}"),
    ("import", "copy.db", "{}"),
    ("postgres", "install", "{}"),
    ("pipeline", "module", "--store", "{}"),
    ("pipeline", "module", "--store={}"),
    ("lake", "export", "{}", "folder"),
    ("lake", "export", "wallet.db", "{}"),
    ("lake", "verify", "{}"),
    ("lake", "restore", "{}", "wallet.db"),
    ("lake", "restore", "lake", "{}"),
    ("audit", "{}"),
    # Mistakes that make click quote an argument.
    ("{}",),
    ("head", "wallet.db", "{}"),
    ("head", "wallet.db", "--nonsense={}"),
    ("read", "wallet.db", "--limit", "{}"),
    ("read", "wallet.db", "--query", "{}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_does_not_print_the_secret(
    cli: Cli, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fencepost.cli.options.spark_session", None)  # no address gets as far as Spark
    fencepost.open("wallet.db").close()
    for address in ADDRESSES:
        ran = cli(*(word.replace("{}", address) for word in command), given=b'{"type": "T"}\n')
        assert ran.code in (2, 3), (address, ran)
        assert SECRET not in ran.out + ran.err, (address, ran)
        assert "Traceback" not in ran.err, (address, ran)
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]


@pytest.mark.parametrize("address", [ADDRESSES[0], ADDRESSES[10], ADDRESSES[25]])
def test_a_traceback_does_not_print_the_secret(cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(address: str) -> None:
        raise RuntimeError(f"cannot open {address!r}, {address[-60:]}")

    monkeypatch.setattr("fencepost.cli.events.open_store", broken)
    ran = cli("head", address)
    assert ran.code == 70
    assert "RuntimeError: cannot open" in ran.err
    assert SECRET not in ran.err


@pytest.mark.parametrize("address", [ADDRESSES[0], ADDRESSES[10], ADDRESSES[13]])
@pytest.mark.parametrize("command", [("verify",)], ids=" ".join)
def test_a_process_does_not_print_the_secret(command: tuple[str, ...], address: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, *command, address], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode != 0
    assert ran.stderr
    assert SECRET not in ran.stdout + ran.stderr


def opened_awaitably(address: str) -> Any:
    async def opened() -> Any:
        return await aio.open(address)

    return asyncio.run(opened())


def installed(address: str) -> Any:
    if "://" not in address:
        raise fencepost.InvalidInput("address", "not what this is about")
    return postgres.install(address.replace("?" + WAIT, "").replace("&" + WAIT, "").replace(WAIT + "&", ""))


def loaded(address: str) -> Any:
    return postgres.load(address.replace("?" + WAIT, "").replace("&" + WAIT, ""), [Event("T")])


def scanned(address: str) -> Any:
    scan = scan_of(address_of(address))
    assert SECRET not in repr(scan)
    return scan.open()


def batched(address: str) -> Any:
    scan = scan_of(address_of(address))
    return list(scan.recorded(0, 1))


def optional(address: str) -> Any:
    options = parse(place_of(address))
    assert SECRET not in repr(options) + repr(place_of(address))
    return scan_of(options.store).open()


def viewed(address: str) -> Any:
    assert SECRET not in repr(View(Balance, by="wallet_id", at="folder", store=address))
    return View(Balance, by="wallet_id", at=address)


ENTRIES: list[Callable[[str], Any]] = [
    fencepost.open,
    opened_awaitably,
    postgres.PostgresEngine,
    open_engine,
    installed,
    loaded,
    scanned,
    batched,
    optional,
    viewed,
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__qualname__)
def test_an_error_does_not_hold_the_secret(
    entry: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    for address in ADDRESSES:
        with pytest.raises((FencepostError, ModuleNotFoundError)) as raised:
            entry(address)
        assert SECRET not in repr(vars(raised.value))
        for error in chain(raised.value):
            for shown in (str(error), repr(error), "".join(traceback.format_exception(error))):
                assert SECRET not in shown, (address, shown)
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]


def chain(error: BaseException | None) -> list[BaseException]:
    """The error with everything that it is caused by, or that was being handled when it was raised."""
    if error is None:
        return []
    return [error, *chain(error.__cause__), *chain(error.__context__)]


@pytest.mark.parametrize("address", ADDRESSES)
def test_spark_is_never_told_the_secret(address: str) -> None:
    with pytest.raises(fencepost.InvalidInput) as refused:
        parse({"store": address})
    assert SECRET not in str(refused.value)
