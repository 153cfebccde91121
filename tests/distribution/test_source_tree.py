"""The source tree holds nothing that a wheel, or a checkout on another system, would lose.

`make dist` builds the wheel and tries it in an environment of its own; these are the causes that can be
seen without building.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fencepost"
FILES = [path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts]


def test_the_package_has_no_symbolic_links() -> None:
    """A checkout without support for them holds a text file instead, and a wheel follows them or not."""
    assert [str(path.relative_to(ROOT)) for path in FILES if path.is_symlink()] == []


def test_every_folder_with_modules_is_a_package() -> None:
    """setuptools finds regular packages only, and leaves out a folder without `__init__.py`."""
    folders = {path.parent for path in FILES if path.suffix == ".py"}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_data_file_is_declared_as_package_data() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["fencepost"]
    declared = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    data = {path for path in FILES if path.is_file() and path.suffix != ".py"}
    assert len(data) >= 4
    assert data - declared == set()
