"""The tutorial happens: its blocks run in their order, and print what they are said to print."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(page: str) -> list[tuple[str, str]]:
    """Each block of Python, with what it is said to print."""
    found: list[tuple[str, str]] = []
    for language, text in BLOCK.findall((PAGES / page).read_text()):
        if language == "python":
            found.append((text, ""))
        else:
            found[-1] = (found[-1][0], text)
    return found


def test_the_tutorial_can_be_followed_in_a_file_and_run_again(tmp_path: Path) -> None:
    code, printed = ("".join(parts) for parts in zip(*steps("tutorial.md"), strict=True))
    (tmp_path / "tutorial.py").write_text(code)
    for _ in range(2):
        ran = subprocess.run([sys.executable, "tutorial.py"], cwd=tmp_path, capture_output=True, text=True)
        assert (ran.stdout, ran.stderr) == (printed, "")


@pytest.mark.parametrize(
    "page", ["tutorial.md", "how-to/decisions.md", "how-to/schema-evolution.md", "reference/decisions.md"]
)
def test_the_blocks_of_a_page_run_and_print_what_they_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where annotations are looked up
    names: dict[str, Any] = vars(module)
    assert steps(page)
    for code, expected in steps(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec", dont_inherit=True), names)
        assert printed.getvalue() == expected, code
