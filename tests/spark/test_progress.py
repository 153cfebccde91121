"""A bar while Spark is at work: on a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.purses import Added, Purse
from tests.spark.test_view import append

from fencepost.spark import fold, progress
from fencepost.spark.watching import CLEAR_LINE, line


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    """In the test itself: pytest replaces standard error between a fixture and the test."""
    made = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "log.db")
    append(path, *[Added(f"p{number % 5}", number) for number in range(50)])
    return path


def test_a_terminal_shows_the_tasks_of_the_block_and_is_clear_afterwards(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = use_terminal(monkeypatch)
    spark.range(10).count()  # its tasks are not counted
    with progress(spark, "folding") as say:
        assert fold(spark, log, Purse, by="purse_id", partitions=3).count() == 5
        deadline = time.monotonic() + 60
        while "folding  " not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        say("done folding")
    drawn = terminal.getvalue().split(CLEAR_LINE)
    assert drawn[1].startswith("folding  ")
    assert drawn[-1] == ""
    (done, _, known, *_) = drawn[-2].split("  ")[-1].split()
    assert drawn[-2].startswith("done folding  ")
    assert done == known, "every task of a finished job counts as done"
    assert int(known) >= 4


def test_nothing_is_drawn_without_a_terminal_or_when_it_is_turned_off(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = use_terminal(monkeypatch)
    with progress(spark, "counting", show=False):
        spark.range(10).count()
    assert terminal.getvalue() == ""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", io.StringIO())
        with progress(spark, "counting") as say:
            say("still counting")
            spark.range(10).count()
        assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_the_threads_own_job_group_is_restored_also_after_an_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = use_terminal(monkeypatch)
    context = spark.sparkContext
    context.setJobGroup("mine", "my jobs")
    try:
        with pytest.raises(ValueError, match="my jobs failed: failing"), progress(spark, "failing"):
            raise ValueError(f"my jobs failed: {context.getLocalProperty('spark.job.description')}")
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "my jobs"
        assert terminal.getvalue().endswith(CLEAR_LINE)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


def test_a_notebook_shows_it_below_the_cell(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stub in place of IPython: the calls are those of its `display` and `DisplayHandle.update`."""
    terminal = use_terminal(monkeypatch)
    shown: list[str] = []

    class StubHandle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(content["text/html"])

    class StubShell:
        kernel = object()

    stub: Any = ModuleType("IPython")
    stub.get_ipython = StubShell
    stub.display = ModuleType("IPython.display")
    stub.display.display = lambda content, *, raw, display_id: StubHandle()
    monkeypatch.setitem(sys.modules, "IPython", stub)
    monkeypatch.setitem(sys.modules, "IPython.display", stub.display)
    with progress(spark, "a < b"):
        spark.range(10).count()
    assert terminal.getvalue() == ""
    assert "a &lt; b" in shown[0]
    assert shown[-1] == ""


def test_a_label_fits_on_one_line() -> None:
    assert line("two\nlines" + "!" * 100, 0, 0, 0.4) == f"two lines{'!' * 39}  {'░' * 24}  0 of 0 tasks, 0 s"
