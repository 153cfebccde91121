"""The index of the examples: it names all of them, and its commands run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.docs.pages import ROOT, page

INDEX = page("examples/README.md")
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if not path.name.startswith(("_", "README")))
# The service runs until it is ended, and has tests of its own.
COMMANDS = sorted(set(re.findall(r"`\.venv/bin/python -m (examples\.\w+)`", INDEX)) - {"examples.wallet"})


def test_every_example_is_in_the_index() -> None:
    rows = [row for row in INDEX.splitlines() if row.startswith("| [")]
    assert len(rows) >= len(EXAMPLES) >= 10
    for path in EXAMPLES:
        assert any(f"({path.name}" in row or f"/{path.stem}/" in row for row in rows), path.name


def test_every_example_of_one_file_has_a_command() -> None:
    assert [f"examples.{path.stem}" for path in EXAMPLES if path.suffix == ".py"] == COMMANDS


@pytest.mark.parametrize("module", COMMANDS)
def test_the_command_of_an_example_runs_and_says_what_happened(module: str) -> None:
    ran = subprocess.run([sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) >= 2
