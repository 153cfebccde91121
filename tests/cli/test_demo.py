"""`fencepost demo`: the applications start, and say what they need."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

from click.testing import CliRunner

from fencepost.cli.app import fencepost
from fencepost.testing.faults import PATIENCE_S


def test_the_wallet_service_starts_on_a_new_file_and_takes_requests(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--store", str(tmp_path / "wallet.db"), "--port", str(port), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "fencepost.cli", "demo", "wallet", *options], cwd=tmp_path)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            try:
                with urlopen(f"{address}/api/health"):
                    break
            except OSError:
                time.sleep(0.05)
        body = json.dumps({"owner": "Ada", "initial_balance": 100}).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{address}/api/wallets/w1", body, headers, method="PUT")) as answer:
            assert answer.status == 201
        with urlopen(f"{address}/api/wallets/w1") as answer:
            assert json.load(answer)["balance"] == 100
        with urlopen(address) as answer:
            assert b"<html" in answer.read()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


def test_several_workers_cannot_share_a_store_in_memory() -> None:
    result = CliRunner().invoke(fencepost, ["demo", "wallet", "--store", "memory:", "--workers", "2"])
    assert result.exit_code == 2
    assert "--workers" in result.output
