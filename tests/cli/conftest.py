"""Running the command: in this process where it can be, and in one of its own where that matters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import Event
from fencepost.cli.app import run

SOURCE = str(Path(fencepost.__file__).parents[1])
COMMAND = [sys.executable, "-m", "fencepost.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "120", "TERM": "xterm"}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    def call(*arguments: str, given: str | bytes = b"") -> Ran:
        raw = given.encode() if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        code = run(arguments)
        out, err = capsysbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    return call


@pytest.fixture
def process() -> Callable[..., subprocess.Popen[bytes]]:
    def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT, **{**pipes, **options})

    return start


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where no store is yet."""
    return str(tmp_path / "wallet.db")


@pytest.fixture
def wallets(path: str) -> str:
    """A store of four events about two wallets."""
    with fencepost.open(path) as store:
        store.append(
            [
                Event("WalletOpened", tags={"wallet:w1", "owner:ada"}, data=b'{"owner": "Ada"}'),
                Event("MoneyDeposited", tags={"wallet:w1"}, data=b'{"amount": 50}'),
                Event("WalletOpened", tags={"wallet:w2"}, data=b'{"owner": "Chen"}'),
                Event("MoneyWithdrawn", tags={"wallet:w1"}, data=b'{"amount": 20}'),
            ]
        )
    return path
