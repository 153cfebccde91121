"""For all tests: Hypothesis takes its time, and tries as much as fits into a run that is made often."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# As pytest does by itself where the package was installed with its entry points.
pytest_plugins = ("fencepost_pytest",)

settings.register_profile("often", deadline=None, max_examples=60)
settings.load_profile("often")

# What a shell runs in the background ignores Ctrl-C, and so do its children; some tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that share a Spark come first, since they take longest."""
    items.sort(key=lambda item: item.path.parent != SPARK)
