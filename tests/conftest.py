"""For all tests: Hypothesis takes its time, and tries as much as fits into a run that is made often."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("often", deadline=None, max_examples=60)
settings.load_profile("often")

# What a shell runs in the background ignores Ctrl-C, and so do its children; some tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = Path(__file__).parent / "spark"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run side by side, a file's tests stay together, and those that share a Spark share a process.

    These come first, since they take longest.
    """
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group("spark" if item.path.parent == SPARK else str(item.path)))
        items.sort(key=lambda item: item.path.parent != SPARK)
