"""Escape characters in stored text that could control a terminal or break a line.

Stored text may hold anything. Tables and messages escape every invisible character (`printable`); JSON lines escape
control characters, and on a terminal every other invisible character too (`without_controls`). tests/cli/test_poison.py
holds this.
"""

from __future__ import annotations

import json
import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # a tab is harmless


def has_controls(text: str) -> bool:
    """Whether the text holds a character that can control a terminal or end the line."""
    return _CONTROLS.search(text) is not None


def without_controls(line: bytes, *, formats: bool) -> bytes:
    """Escape the control characters in a line of JSON; if `formats`, every other invisible character as well.

    >>> without_controls('["\\x9b2J", "\\u202e"]'.encode(), formats=True)
    b'["\\\\u009b2J", "\\\\u202e"]'
    """
    if line.isascii() and b"\x7f" not in line:
        return line
    text = line.decode()
    if formats and not text.isprintable():
        return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in text]).encode()
    return _CONTROLS.sub(lambda found: json.dumps(found.group())[1:-1], text).encode()


def printable(text: str) -> str:
    """The text on one line, with every invisible character escaped.

    >>> printable("a\\tb\\x1b[2J")
    'a\\\\tb\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])
