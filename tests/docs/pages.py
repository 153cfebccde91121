"""The documentation as data: its pages, their sections, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of code in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sections(text: str, level: int) -> dict[str, str]:
    """What stands under each heading of the level, from 2 on, up to the next of the same level or above."""
    marked = re.sub(r"^```.*?^```$", _without_headings, text, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(rf"^#{{{level}}} (.+)$", marked, flags=re.MULTILINE)
    above = re.compile(rf"^#{{1,{level - 1}}} ", re.MULTILINE)
    return {heading: above.split(body)[0] for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def _without_headings(code: re.Match[str]) -> str:
    """What begins with # in code is a comment."""
    return re.sub("^#", " #", code[0], flags=re.MULTILINE)
