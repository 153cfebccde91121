"""Event loops that a test closes, or stops for good, while tasks are pending on them.

asyncio logs "Task was destroyed but it is pending!" for each such task when it is garbage-collected, often after the
last test. The tests leave these tasks pending on purpose, so their loops do not report them. Other errors are reported.
"""

from __future__ import annotations

import asyncio
from typing import Any

DESTROYED = "Task was destroyed but it is pending!"


def loop_to_abandon() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_report_other_errors)
    return loop


def _report_other_errors(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if context["message"] != DESTROYED:
        loop.default_exception_handler(context)
