"""Ctrl-C while Spark is at work.

An interrupt that is raised in the middle of a call to the JVM leaves the connection to it useless, and comes
out as an error of that connection; raised while the JVM starts, it leaves a JVM behind that nobody ends. Here it
is raised as soon as no such call is under way. A call that takes long, because Spark runs a job for it, is
ended by cancelling the jobs.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

AGAIN_EVERY_S: Final = 0.1
LAUNCHING: Final = "pyspark.java_gateway"
CALLING: Final = "py4j"


@contextmanager
def interruptible(cancel: Callable[[], object] | None = None) -> Iterator[None]:
    """Ctrl-C, in the block, raises KeyboardInterrupt, never within a call to the JVM; `cancel` ends what runs there.

    Spark has a handler of its own, which it installs with a session; the one that was there is back afterwards.
    Elsewhere than in the main thread there is nothing to do: no interrupt is raised there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = Interrupts(cancel)
    before = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield
    except Exception as error:
        if interrupts.owed or interrupted(error):  # what was cancelled says so, in its own words
            raise KeyboardInterrupt from error
        raise
    finally:
        interrupts.end()
        if signal.getsignal(signal.SIGINT) == interrupts.handle:
            signal.signal(signal.SIGINT, before)
    if interrupts.owed:
        raise KeyboardInterrupt


class Interrupts:
    """What to do with one: raise it, or have it come again when the main thread has returned from the JVM."""

    def __init__(self, cancel: Callable[[], object] | None) -> None:
        self.owed = False  # came, and is still to be raised
        self._cancel = cancel
        self._waits = False
        self._over = threading.Event()
        self._ending = threading.Lock()

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.owed = True
        if self._over.is_set():
            return  # the block is being left, and raises it
        if not calls_java(frame):
            self.owed = False
            raise KeyboardInterrupt
        if not self._waits:
            self._waits = True
            threading.Thread(target=self._come_again, name="fencepost-interrupt", daemon=True).start()

    def end(self) -> None:
        with self._ending:
            self._over.set()

    def _come_again(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            while not self._over.wait(AGAIN_EVERY_S):
                with self._ending:
                    if not self._over.is_set() and not calls_java(sys._current_frames().get(main)):
                        self._waits = False
                        _thread.interrupt_main()
                        return
                if self._cancel is not None:
                    self._cancel()
        except Py4JError:
            self._waits = False  # the JVM has gone, as the call that waits for it is told as well


def calls_java(frame: FrameType | None) -> bool:
    """Whether a call to the JVM is under way in this frame or in one that has called it, or the JVM being started."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == LAUNCHING or module.partition(".")[0] == CALLING:
            return True
        frame = frame.f_back
    return False


def interrupted(error: BaseException | None) -> bool:
    """Whether it was raised while an interrupt was dealt with: one that another handler has raised within a call."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def jobs_of(spark: SparkSession) -> Callable[[], object] | None:
    """What cancels them all; None through Spark Connect, whose calls can be interrupted as they are."""
    return spark.sparkContext.cancelAllJobs if isinstance(spark, SparkSession) else None
