"""What an administrator does to a cluster, through FoundationDB's own tools: kill, suspend, back up, restore."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

TIMEOUT_S = 600
POLL_S = 1.0


def fdbcli(cluster_file: str, command: str) -> str:
    return _run(["fdbcli", "-C", cluster_file, "--exec", command])


def processes(cluster_file: str) -> list[str]:
    """The addresses of the server processes, as `kill` lists them."""
    return re.findall(r"\d+\.\d+\.\d+\.\d+:\d+(?::tls)?", fdbcli(cluster_file, "kill"))


def kill(cluster_file: str, addresses: Sequence[str]) -> None:
    """Kill server processes, which their monitor starts again. `kill` must list them first."""
    fdbcli(cluster_file, f"kill; kill {' '.join(addresses)}")


def suspend(cluster_file: str, seconds: int, addresses: Sequence[str]) -> None:
    """Let server processes answer nothing for a while, as if the network had cut them off.

    They die at the end of it, and their monitor starts them again. `fdbcli` ends before its request has left unless
    another command follows.
    """
    fdbcli(cluster_file, f"suspend; suspend {seconds} {' '.join(addresses)}; status minimal")


def uptimes_s(cluster_file: str) -> dict[str, float]:
    """For how long each server process that answers has run, by its address."""
    processes = json.loads(fdbcli(cluster_file, "status json"))["cluster"]["processes"]
    return {process["address"]: process["uptime_seconds"] for process in processes.values()}


def wait_until_restarted(cluster_file: str, addresses: Iterable[str], *, within_s: float) -> None:
    """Wait until each of these server processes answers and is younger than that."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        uptimes = uptimes_s(cluster_file)
        old = [address for address in addresses if uptimes.get(address, within_s) >= within_s]
        if not old:
            return
        assert time.monotonic() < deadline, f"these servers did not restart: {old}"
        time.sleep(POLL_S)
        within_s += POLL_S


def back_up(cluster_file: str, folder: Path, begin: bytes, end: bytes) -> None:
    """Write a range of keys to a folder, which all backup agents must be able to write to."""
    _run(["fdbbackup", "start", "-C", cluster_file, "-d", f"file://{folder}", "-k", _keys(begin, end), "-w"])


def restore(cluster_file: str, folder: Path, begin: bytes, end: bytes) -> None:
    """Restore a range of keys, which must be empty, from the one backup in the folder."""
    [backup] = folder.glob("backup-*")
    command = ["fdbrestore", "start", "--dest-cluster-file", cluster_file, "-r", f"file://{backup}"]
    _run([*command, "-k", _keys(begin, end), "-w"])


def _keys(begin: bytes, end: bytes) -> str:
    """A range as the tools take it: each byte of a key that is not a letter or digit is written in hexadecimal."""

    def written(key: bytes) -> str:
        return "".join(chr(byte) if byte < 128 and chr(byte).isalnum() else f"\\x{byte:02x}" for byte in key)

    return f"{written(begin)} {written(end)}"


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command} failed: {done.stdout}{done.stderr}"
    return done.stdout
