"""docs/reference/consumers.md describes every public name, with what each class offers, and nothing else."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import blocks, page

import fencepost
from fencepost import EventStore, FencepostError, consumers

ROOT = Path(__file__).parents[2]
PAGE = page("docs/reference/consumers.md")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAMES: dict[str, Any] = {name: getattr(consumers, name) for name in consumers.__all__}


def members(named: Any) -> set[str]:
    """What a class adds to what it inherits from outside."""
    if not inspect.isclass(named):
        return set()
    if issubclass(named, FencepostError):
        found = {*inspect.signature(named.__init__).parameters, *vars(named)} - {"self", "args", "kwargs"}
    else:
        own = [base for base in named.__mro__ if base.__module__.startswith("fencepost") and base is not EventStore]
        found = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_described_with_what_it_offers(name: str) -> None:
    code = " ".join(re.findall(r"`([^`]+)`", SECTIONS[name]))
    assert SECTIONS[name].strip()
    assert {member for member in members(NAMES[name]) if not re.search(rf"\b{member}\b", code)} == set()


def test_nothing_is_described_that_is_not_there() -> None:
    assert SECTIONS.keys() == NAMES.keys()


def test_the_tree_of_errors_is_that_of_the_module() -> None:
    drawn = re.findall(r"[├└]── (\w+)", PAGE)
    assert drawn == re.findall(r"[├└]── (\w+)", fencepost.consumers.errors.__doc__ or "")


@pytest.mark.parametrize("guide", ["consumers", "automations"])
def test_the_guide_runs_as_one_program(guide: str, tmp_path: Path) -> None:
    code = "\n".join(blocks(page(f"docs/how-to/{guide}.md"), "python"))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
