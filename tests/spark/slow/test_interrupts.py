"""Ctrl-C on a terminal, which all processes of the command get, at moments that are hard to bear."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.slow.conftest import SOURCES, environment
from tests.support.process_table import processes

import fencepost
from fencepost import Event
from fencepost.cli import exits

pytestmark = pytest.mark.timeout(600)


def begun(store: Path) -> subprocess.Popen[str]:
    with fencepost.open(str(store)) as opened:
        opened.append([Event(type="Happened", data=b"", tags={f"number:{number}"}) for number in range(1_000)])
    words = ["audit", str(store), "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, "-m", "fencepost.cli", *words],
        cwd=Path(SOURCES).parent,
        env=environment(store.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def names(group: int) -> list[str]:
    """The names of what runs in the process group."""
    return [process.name for process in processes() if process.group == group]


@pytest.mark.parametrize("later_s", [0.0, 1.0, 4.0])
def test_while_spark_starts_nothing_is_left_behind(tmp_path: Path, later_s: float) -> None:
    command = begun(tmp_path / "log.db")
    try:
        assert until(lambda: "java" in names(command.pid), 60)
        time.sleep(later_s)
        os.killpg(command.pid, signal.SIGINT)
        output, errors = command.communicate(timeout=120)
        assert (command.returncode, output) == (exits.INTERRUPTED, ""), errors
        assert "Traceback" not in errors
        assert until(lambda: not names(command.pid), 60), names(command.pid)
    finally:
        if names(command.pid):
            os.killpg(command.pid, signal.SIGKILL)
