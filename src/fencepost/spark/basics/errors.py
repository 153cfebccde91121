"""Errors of a worker that reach the driver as one sentence.

Spark reports an error of a Python process with the whole traceback. That is right for a bug and noise for "there is
no such store". Spark leaves the traceback out if an environment variable says so when it reports. So `reporting` sets
that variable when an error of Fencepost passes; the process ends after the report, so no other error is shortened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from ...errors import FencepostError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def reporting() -> Iterator[None]:
    """Let Spark report errors of Fencepost that the block raises without their tracebacks."""
    try:
        yield
    except FencepostError:
        os.environ[HIDE] = "1"
        raise


def reported(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function, run inside `reporting`."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with reporting():
            return function(*args, **kwargs)

    return run
