"""What an administrator does to a cluster, through FoundationDB's own tools: kill, suspend, back up, restore."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 600


def fdbcli(cluster_file: str, command: str) -> str:
    return _run(["fdbcli", "-C", cluster_file, "--exec", command])


def processes(cluster_file: str) -> list[str]:
    """The addresses of the server processes, as `kill` lists them."""
    return re.findall(r"\d+\.\d+\.\d+\.\d+:\d+(?::tls)?", fdbcli(cluster_file, "kill"))


def kill(cluster_file: str, addresses: Sequence[str]) -> None:
    """Kill server processes, which their monitor starts again. `kill` must list them first."""
    fdbcli(cluster_file, f"kill; kill {' '.join(addresses)}")


def suspend(cluster_file: str, seconds: int, addresses: Sequence[str]) -> None:
    """Let server processes answer nothing for a while, as if the network had cut them off."""
    fdbcli(cluster_file, f"suspend; suspend {seconds} {' '.join(addresses)}")


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
