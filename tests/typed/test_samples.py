"""Type checkers see what the samples say; and the samples do what they say."""

from __future__ import annotations

import pytest
from tests.typed.checkers import CHECKERS, Finding, differences, marks
from tests.typed.samples import right

import fencepost


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_checkers_find_what_is_marked_and_nothing_else(checker: str) -> None:
    assert differences(checker) == []


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_that_finds_something_else_is_told(checker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(marks(checker))
    other = Finding("right.py", 1, "surprise", "what is this?")
    monkeypatch.setitem(CHECKERS, checker, lambda: iter([*found[1:], other]))
    missed, unmarked = differences(checker)
    assert f"wrong.py:{found[0].line}: {checker} does not find [{found[0].code}]" == missed
    assert "right.py:1" in unmarked
    assert "what is this?" in unmarked


def test_what_is_right_for_the_checkers_works() -> None:
    with fencepost.open("memory:") as store:
        right.blocking(store)


async def test_what_is_right_for_the_checkers_works_awaited() -> None:
    async with fencepost.aio.open("memory:") as store:
        await right.awaited(store)
