"""Every wait hears Ctrl-C, and no interrupt can leave a lock held: only `fencepost.core.interrupts` waits."""

from __future__ import annotations

import ast

import pytest

from .sources import broken, modules, tree

# Waiting is built in `interrupts`. Modules of `testing` run only in tests.
EXEMPT = ("core/interrupts.py", "testing/")
# These run in the program's own thread, where signals are not held back, and hold no lock while they sleep.
MAY_SLEEP = {"decisions", "spark", "cli"}
# A hook acquires the lock before a fork and another hook releases it afterwards: there is no block to put it in.
MAY_ACQUIRE = {"engines/sqlite/forks.py"}
FORBIDDEN = {
    "threading": {"Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"},
    "queue": {"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"},
    "multiprocessing": {"Event", "Condition", "Queue", "Semaphore"},
}


def waits(name: str) -> list[str]:
    found = forbidden(tree(name), may_sleep=name.split("/")[0] in MAY_SLEEP)
    return [each for each in found if name not in MAY_ACQUIRE or not each.endswith(": acquire")]


def test_a_module_waits_only_through_interrupts() -> None:
    found = broken(waits, [name for name in modules() if not name.startswith(EXEMPT)])
    assert found == {}, "use Wakeup, Waiters or pause of fencepost.core.interrupts, and plain locks in `with`"


def forbidden(tree: ast.AST, *, may_sleep: bool) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id
            if node.attr in FORBIDDEN.get(name, ()) or (not may_sleep and (name, node.attr) == ("time", "sleep")):
                found.append(f"line {node.lineno}: {name}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module in (*FORBIDDEN, "time"):
            banned = FORBIDDEN.get(node.module, set() if may_sleep else {"sleep"})
            found += [f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name in banned]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire":
            found.append(f"line {node.lineno}: acquire")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "import threading\nready = threading.Event()",
        "from threading import Condition",
        "from queue import Queue",
        "import time\ntime.sleep(1)",
        "from time import sleep",
        "lock.acquire()",
    ],
)
def test_the_rule_finds_what_it_forbids(text: str) -> None:
    assert forbidden(ast.parse(text), may_sleep=False)
