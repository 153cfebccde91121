"""A module has one idea and at most 400 lines."""

from __future__ import annotations

import pytest

from .sources import modules, text

LINES = 400


@pytest.mark.parametrize("name", modules())
def test_a_module_is_at_most_400_lines_long(name: str) -> None:
    assert not too_long(text(name)), "split the module by idea"


def too_long(source: str) -> bool:
    return len(source.splitlines()) > LINES


def test_the_rule_finds_what_it_forbids() -> None:
    assert too_long("x = 1\n" * 401)
    assert not too_long("x = 1\n" * 400)
