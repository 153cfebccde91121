"""What docstrings show is what happens."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import fencepost

SOURCES = Path(fencepost.__file__).parent
SHOWING = sorted(path for path in SOURCES.rglob("*.py") if ">>> " in path.read_text())


def name_of(path: Path) -> str:
    return ".".join(("fencepost", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("path", SHOWING, ids=name_of)
def test_the_examples_of_a_module_hold(path: Path) -> None:
    result = doctest.testmod(import_module(name_of(path)), optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed
