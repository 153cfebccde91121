"""The files that the rules of tests/tidy are about."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fencepost"


def modules() -> list[str]:
    """Every module of the package, as a path below src/fencepost."""
    return [str(path.relative_to(SOURCE)) for path in sorted(SOURCE.rglob("*.py"))]


def broken(rule: Callable[[str], object], names: Iterable[str]) -> dict[str, object]:
    """What the rule finds in each of the files; a file in which it finds nothing is left out."""
    return {name: found for name in names if (found := rule(name))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name))


@cache
def text(name: str) -> str:
    return (SOURCE / name).read_text()
