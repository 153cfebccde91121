"""A pytest plugin: a test with a `given(...).when(...)` scenario that has no `then` fails.

    given(opened).when(withdraw, Balance("w1"), amount=50)    # without .then(...) this checks nothing

Each scenario registers a callable with `watch`; after the test, the plugin calls it to find out whether the scenario
was checked. pytest loads this module in every run where Fencepost is installed, so it does not import Fencepost.
tests/decisions/test_given.py holds this.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

import pytest

# Returns None if the scenario was checked, otherwise a message with its file and line.
Forgotten: TypeAlias = Callable[[], str | None]

_watched: list[Forgotten] | None = None


def watch(forgotten: Forgotten) -> bool:
    """Call `forgotten` when the current test ends. Returns False if no test is running."""
    if _watched is None:
        return False
    _watched.append(forgotten)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    global _watched
    before, _watched = _watched, []
    try:
        outcome = yield  # raises if the test failed, perhaps before its `then`
        found = [each for forgotten in _watched if (each := forgotten()) is not None]
    finally:
        _watched = before
    if found:
        pytest.fail("\n".join(found), pytrace=False)
    return outcome
