"""A progress bar for whatever Spark does in a block: exports, folds, refreshes, audits, or a query of your own.

    with fencepost.spark.progress(spark, "refreshing balances"):
        view.refresh()

The bar counts the tasks of the jobs that this thread starts in the block, as Spark reports them; a finished job counts
with all of its tasks, because Spark skips some. A thread draws it on a terminal (standard error) or in a notebook, and
clears it at the end. Elsewhere nothing is drawn and Spark is not asked. The label is also the jobs' description in
Spark's UI. tests/spark/test_progress.py holds this.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ..engine import Wakeup

DRAW_EVERY_S: Final = 0.2
BAR_WIDTH: Final = 24
LABEL_LENGTH: Final = 48
CLEAR_LINE: Final = "\r\x1b[K"
GROUP_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

Say = Callable[[str], None]
Draw = Callable[[str], None]  # an empty text clears what was drawn


@contextmanager
def progress(spark: SparkSession, label: str = "running", *, show: bool | None = None) -> Iterator[Say]:
    """Show the progress of the jobs that this thread starts in the block; yields a function that changes the label.

    By default the bar is drawn if standard error is a terminal, or in a notebook. `show=False` turns it off. Spark
    Connect does not report tasks to this function and draws a bar of its own.
    """
    draw = _screen() if show is not False and isinstance(spark, SparkSession) else None
    if draw is None:
        yield lambda label: None
        return
    with _job_group(spark, label) as group:
        bar = _Bar(spark, group, draw, label)
        try:
            bar.start()
            yield bar.say
        finally:
            bar.end()


@contextmanager
def _job_group(spark: SparkSession, label: str) -> Iterator[str]:
    """A group for the jobs of this thread, by which they are found; afterwards the thread has its former group."""
    context = spark.sparkContext
    before = [context.getLocalProperty(name) for name in GROUP_PROPERTIES]
    group = f"fencepost-{uuid4().hex}"
    context.setJobGroup(group, label)
    try:
        yield group
    finally:
        for name, value in zip(GROUP_PROPERTIES, before, strict=True):
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Completed tasks of a job group, and all of its tasks that are known so far."""
    tracker = spark.sparkContext.statusTracker()
    done = known = 0
    for number in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(number)
        stages = [tracker.getStageInfo(stage) for stage in job.stageIds] if job is not None else []
        found = [stage for stage in stages if stage is not None]
        tasks = sum(stage.numTasks for stage in found)
        ended = job is not None and job.status != "RUNNING"
        known += tasks
        done += tasks if ended else sum(stage.numCompletedTasks for stage in found)
    return done, known


def _terminal(stream: TextIO) -> Draw:
    """Draws on the last line of a terminal."""

    def draw(text: str) -> None:
        stream.write(CLEAR_LINE + text)
        stream.flush()

    return draw


def _notebook(display: Callable[..., Any]) -> Draw:
    """Draws into an output below the cell of a notebook, which each drawing replaces."""
    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def draw(text: str) -> None:
        shown = f"<pre>{html.escape(text)}</pre>" if text else ""
        handle.update({"text/html": shown, "text/plain": text}, raw=True)

    return draw


def _screen() -> Draw | None:
    """Draws in the notebook or the terminal of this process; None if it has neither."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if running is not None and hasattr(running, "kernel"):
        from IPython.display import display  # type: ignore[import-not-found]

        return _notebook(display)
    return _terminal(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None


class _Bar:
    """Draws until it is ended; in a thread of its own."""

    def __init__(self, spark: SparkSession, group: str, draw: Draw, label: str) -> None:
        self._spark = spark
        self._group = group
        self._draw = draw
        self._label = label
        self._began = time.monotonic()
        self._ended = Wakeup()
        self._thread = threading.Thread(target=self._run, name="fencepost-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, label: str) -> None:
        self._label = label

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._draw("")

    def _run(self) -> None:
        ended = False
        with suppress(Py4JError):  # the JVM has gone; the code in the block raises the same error
            while not ended:
                ended = self._ended.wait(DRAW_EVERY_S)  # so that a short block draws nothing but its end
                done, known = _tasks(self._spark, self._group)
                self._draw(line(self._label, done, known, time.monotonic() - self._began))


def line(label: str, done: int, known: int, seconds: float) -> str:
    """
    >>> line("folding", 3, 4, 2.4)
    'folding  ██████████████████░░░░░░  3 of 4 tasks, 2 s'
    """
    filled = BAR_WIDTH * done // known if known else 0
    bar = "█" * filled + "░" * (BAR_WIDTH - filled)
    shown = "".join(letter if letter.isprintable() else " " for letter in label)[:LABEL_LENGTH]
    return f"{shown}  {bar}  {done:,} of {known:,} tasks, {seconds:.0f} s"
