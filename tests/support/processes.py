"""Processes that a test starts, follows by what they report, and kills without warning.

A child reports by appending lines to a file, each with one write, so that a line is there whole
or not at all whatever happens to the child afterwards. The test waits for lines, never for time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic, sleep

from fencepost.testing.faults import PATIENCE_S


def same_path() -> dict[str, str]:
    """The environment for a child process that must import what this process imports, from any working directory."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Child(AbstractContextManager["Child"]):
    """A Python program in a process of its own; its arguments are where to report, and what it is given."""

    def __init__(self, program: str | os.PathLike[str], reports: Path, *arguments: object) -> None:
        self.reports = reports
        command = [sys.executable, os.fspath(program), os.fspath(reports), *map(str, arguments)]
        self._process = subprocess.Popen(command, env=same_path(), stderr=subprocess.PIPE, text=True)

    def lines(self) -> list[str]:
        """What the child has reported so far."""
        return self.reports.read_text().splitlines() if self.reports.exists() else []

    def wait_for(self, lines: int) -> None:
        """Wait until the child has reported this number of lines."""
        self._wait(lambda: len(self.lines()) >= lines, f"{lines} lines")

    def kill(self) -> None:
        """As `kill -9` does: the child gets no chance to do anything."""
        self._process.kill()
        _, complaints = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == -signal.SIGKILL, f"the child had ended before it was killed:\n{complaints}"

    def result(self) -> None:
        """Wait until the child ends by itself, and check that it succeeded."""
        _, complaints = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, f"the child failed:\n{complaints}"

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        deadline = monotonic() + PATIENCE_S
        while not reached():
            if self._process.poll() is not None:
                self.result()
                assert reached(), f"the child ended before it had reported {what}"
            assert monotonic() < deadline, f"the child hangs: {what} were expected, it reported {self.lines()[-3:]}"
            sleep(0.001)

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        if self._process.stderr is not None:
            self._process.communicate()
