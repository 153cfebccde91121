"""Ctrl-C while Spark is at work.

An interrupt that is raised during a call to the JVM breaks the connection, and appears as an error of that connection;
raised while the JVM starts, it leaves a JVM running. So it is raised as soon as no such call is under way. A call that
takes long because Spark runs a job for it is ended by cancelling the jobs.
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

from ...engine import Wakeup, shielded

AGAIN_EVERY_S: Final = 0.1
LAUNCHING: Final = "pyspark.java_gateway"
CALLING: Final = "py4j"


@contextmanager
def interruptible(cancel: Callable[[], object] | None = None) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the block, but not during a call to the JVM; `cancel` ends such a call.

    The previous handler is restored afterwards, also if Spark installs one of its own. Outside the main thread this
    does nothing, because Python raises no interrupts there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = Interrupts(cancel)
    before = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield
    except Exception as error:
        if interrupts.owed or interrupted(error):  # a cancelled job raises an error of Spark
            raise KeyboardInterrupt from error
        raise
    finally:
        interrupts.end()
        if signal.getsignal(signal.SIGINT) == interrupts.handle:
            signal.signal(signal.SIGINT, before)
    if interrupts.owed:
        raise KeyboardInterrupt


class Interrupts:
    """Raises an interrupt, or repeats it when the main thread has returned from the JVM."""

    def __init__(self, cancel: Callable[[], object] | None) -> None:
        self.owed = False  # an interrupt came and has not been raised
        self._cancel = cancel
        self._waits = False
        self._over = False
        self._ended = Wakeup()
        self._ending = threading.Lock()

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.owed = True
        if self._over:
            return  # the block is ending, and raises it
        if not calls_java(frame):
            self.owed = False
            raise KeyboardInterrupt
        if not self._waits:
            self._waits = True
            threading.Thread(target=self._come_again, name="fencepost-interrupt", daemon=True).start()

    def end(self) -> None:
        with shielded, self._ending:
            self._over = True
            self._ended.set()

    def _come_again(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            while not self._ended.wait(AGAIN_EVERY_S):
                with self._ending:
                    if not self._over and not calls_java(sys._current_frames().get(main)):
                        self._waits = False
                        _thread.interrupt_main()
                        return
                if self._cancel is not None:
                    self._cancel()
        except Py4JError:
            self._waits = False  # the JVM has gone; the call that waits for it raises the same error


def calls_java(frame: FrameType | None) -> bool:
    """Whether this frame, or a caller of it, is in a call to the JVM or is starting the JVM."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == LAUNCHING or module.partition(".")[0] == CALLING:
            return True
        frame = frame.f_back
    return False


def interrupted(error: BaseException | None) -> bool:
    """Whether the error was raised while a KeyboardInterrupt of another handler was being handled."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def jobs_of(spark: SparkSession) -> Callable[[], object] | None:
    """A function that cancels all jobs; None for Spark Connect, whose calls can be interrupted directly."""
    return spark.sparkContext.cancelAllJobs if isinstance(spark, SparkSession) else None
