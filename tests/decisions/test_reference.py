"""docs/reference/decisions.md describes every public name, with what each class offers, and nothing else."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost import FencepostError, decisions
from fencepost.decisions import inspection

PAGE = (Path(__file__).parents[2] / "docs/reference/decisions.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAMES: dict[str, Any] = {name: getattr(decisions, name) for name in decisions.__all__}


def members(named: Any) -> set[str]:
    """What a class adds to what it inherits from outside."""
    if not inspect.isclass(named) or getattr(named, "_is_protocol", False):
        return set()
    if issubclass(named, FencepostError):
        found = {*inspect.signature(named.__init__).parameters, *vars(named)} - {"self", "args", "kwargs"}
    else:
        own = [base for base in named.__mro__ if base.__module__.startswith("fencepost")]
        found = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_described_with_what_it_offers(name: str) -> None:
    code = " ".join(re.findall(r"`([^`]+)`", SECTIONS[name]))
    assert SECTIONS[name].strip()
    assert {member for member in members(NAMES[name]) if not re.search(rf"\b{member}\b", code)} == set()


def test_nothing_is_described_that_is_not_there() -> None:
    assert SECTIONS.keys() == NAMES.keys()


def test_the_public_names_are_fewer_than_25() -> None:
    assert len(NAMES) < 25


def test_the_names_for_tools_are_described_in_one_section() -> None:
    (section,) = re.findall(r"^## For tools\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    code = " ".join(re.findall(r"`([^`]+)`", section))
    assert {name for name in inspection.__all__ if not re.search(rf"\b{name}\b", code)} == set()
