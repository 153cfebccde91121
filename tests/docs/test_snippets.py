"""What the documentation shows, happens: Python blocks run, and sessions print what they are said to print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import ROOT, blocks, page

PYTHON_PAGES = ["README.md", "docs/reference/api.md"]
SESSION_PAGES = ["README.md", "docs/reference/cli.md"]
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment whose `fencepost` and `python` are those that are being tested."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("fencepost", "-m fencepost.cli"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}


def steps(session: str) -> Iterator[tuple[str, str]]:
    """Each command of a session, with what it is said to print."""
    for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, printed = step.partition("\n")
        yield command, printed


@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_python_runs(name: str, tmp_path: Path, shell: dict[str, str]) -> None:
    found = blocks(page(name), "python")
    assert found
    for code in found:
        ran = subprocess.run(["python", "-c", code], cwd=tmp_path, env=shell, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_the_first_example_is_refused_in_the_words_that_are_quoted(tmp_path: Path, shell: dict[str, str]) -> None:
    readme = page("README.md")
    (code,) = blocks(readme, "python")
    ran = subprocess.run(["python", "-c", code], cwd=tmp_path, env=shell, capture_output=True, text=True, check=True)
    (quoted,) = re.findall(r"It prints `(.*?)`", readme, re.DOTALL)
    assert ran.stdout.strip() == quoted.replace("\n", " ")


@pytest.mark.parametrize("name", SESSION_PAGES)
def test_sessions_print_what_they_are_said_to_print(name: str, tmp_path: Path, shell: dict[str, str]) -> None:
    text = page(name)
    # A session may use what the examples above it have made.
    for code in blocks(text, "python"):
        subprocess.run(["python", "-c", code], cwd=tmp_path, env=shell, capture_output=True, check=True)
    found = [step for session in blocks(text, "console") for step in steps(session)]
    assert found
    for command, printed in found:
        ran = subprocess.run(
            command, shell=True, cwd=tmp_path, env=shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert MOMENT.sub("moment", ran.stdout) == MOMENT.sub("moment", printed), command
