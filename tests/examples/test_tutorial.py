"""The tutorial happens: its blocks run in their order, and print what they are said to print."""

from __future__ import annotations

import contextlib
import io
import re
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


@pytest.mark.parametrize("page", ["tutorial.md", "how-to/decisions.md", "reference/decisions.md"])
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
