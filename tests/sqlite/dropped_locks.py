"""A process that reads a file of its open store as another library would: the operating system drops the locks."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import same_path
from tests.support.reporting import report

import fencepost
from fencepost import Event, StoreUnavailable
from fencepost.engines.sqlite.connections import connect, transaction

APPEND = """
import sys
import fencepost
from fencepost.engines.sqlite import SqliteEngine

try:
    with fencepost.EventStore(SqliteEngine(sys.argv[1], patience_s=0.2)) as store:
        print(store.append([fencepost.Event("Other")]).first)
except fencepost.StoreError as error:
    print(f"{type(error).__name__}: {error}")
"""


def append_in_another_process(path: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", APPEND, path], env=same_path(), capture_output=True, check=True, text=True
    ).stdout.strip()


def read_all_files(reports: str, path: str) -> None:
    """As a program does that copies the folder of its store."""
    with fencepost.open(path) as store:
        store.append([Event("A")])
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").read_bytes()
        report(reports, f"other: {append_in_another_process(path)}")
        try:
            report(reports, f"mine: {store.append([Event('Mine')]).first}")
        except StoreUnavailable as error:
            report(reports, f"mine: {str(error).partition(': ')[2]}")
        time.sleep(600)  # it is killed here: closing the store would copy its log into the file


def read_inside_a_transaction(reports: str, path: str, suffix: str = "") -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
        with transaction(connect(path, timeout_s=1, cache_kib=64)):
            if suffix:
                Path(f"{path}{suffix}").read_bytes()
            report(reports, f"other: {append_in_another_process(path)}")


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[1], *sys.argv[3:])
