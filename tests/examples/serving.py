"""The wallet service as it is run: in processes of its own, on a free port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx

ROOT = Path(__file__).parents[2]
START_S = 60.0


@contextmanager
def serving(address: str, *, workers: int = 1) -> Iterator[str]:
    """The base URL of a service on the store at the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--store", address, "--port", str(port), "--workers", str(workers), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-m", "examples.wallet", *options], cwd=ROOT, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = monotonic() + START_S
    while monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/api/health").status_code == 200:
                return
        except httpx.TransportError:
            sleep(0.05)
    raise AssertionError(f"the service did not start; its exit code is {process.poll()}")
