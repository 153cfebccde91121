"""Errors that reach the driver as one sentence.

Spark reports what a Python process of its own raises with the whole traceback, which is right for
a bug and noise for "there is no such store". It leaves the traceback away when an environment
variable says so, which it looks at when it reports. So the variable is set when one of our own
errors goes by; the process ends after the report, so nobody else's errors are shortened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from ..errors import FencepostError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def reporting() -> Iterator[None]:
    try:
        yield
    except FencepostError:
        os.environ[HIDE] = "1"
        raise


def reported(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function; what it raises of ours is reported without a traceback."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with reporting():
            return function(*args, **kwargs)

    return run
