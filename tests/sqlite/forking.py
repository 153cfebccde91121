"""A process that forks, acts in parent and child, and reports the results. `main` runs the named scenario."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import same_path
from tests.support.reporting import report

import fencepost
from fencepost import Event, FencepostError
from fencepost.engine import engine_of
from fencepost.engines.sqlite import SqliteEngine, backup, verify


def attempt(call: Callable[[], object]) -> str:
    try:
        return f"{call()}"
    except FencepostError as error:
        return f"{type(error).__name__}: {error}"


def appended(path: str, type: str) -> int:
    with fencepost.open(path) as store:
        return store.append([Event(type)]).first


def forked(child: Callable[[], None]) -> int:
    """The child's exit status. The child ends as any interpreter does, so it destroys all objects."""
    process = os.fork()
    if process == 0:
        child()
        sys.exit(0)
    _, status = os.waitpid(process, 0)
    return status


def with_an_open_store(path: str, say: Callable[[str], None]) -> None:
    store = fencepost.open(path)
    store.append([Event("A")] * 3_000)
    reading = store.read()
    next(reading)
    subscription = store.subscribe()
    next(subscription)
    os.symlink(path, f"{path}.symlink")

    def child() -> None:
        say(attempt(lambda: store.append([Event("B")])))
        say(attempt(store.read))
        say(attempt(store.head))
        say(attempt(lambda: list(reading)))
        say(attempt(lambda: list(subscription)))
        for name in (path, f"{path}.symlink", f"{path}?mode=ro"):
            say(attempt(lambda name=name: appended(name, "B")))  # type: ignore[misc]
        say(attempt(lambda: verify(path)))
        say(attempt(lambda: backup(path, f"{path}.copy")))
        subscription.stop()
        store.close()

    status = forked(child)
    say(f"ended with {status}")
    say(attempt(lambda: store.append([Event("C")]).first))
    store.close()


def with_a_closed_store(path: str, say: Callable[[str], None]) -> None:
    appended(path, "A")

    def child() -> None:
        say(attempt(lambda: appended(path, "B")))
        say(attempt(lambda: forked(lambda: say(attempt(lambda: appended(path, "C"))))))

    say(f"ended with {forked(child)}")
    say(attempt(lambda: appended(path, "D")))


def with_another_file_open(path: str, say: Callable[[str], None]) -> None:
    with fencepost.open(f"{path}.other") as other:
        other.append([Event("A")])

        def child() -> None:
            say(attempt(lambda: appended(path, "B")))
            # A file that the child has inherited is inherited by a grandchild as well.
            say(attempt(lambda: forked(lambda: say(attempt(lambda: appended(f"{path}.other", "C"))))))

        say(f"ended with {forked(child)}")


def while_a_thread_is_inside_sqlite(path: str, say: Callable[[str], None]) -> None:
    with fencepost.open(f"{path}.other") as other:
        engine = engine_of(other)
        assert isinstance(engine, SqliteEngine)
        inside, leave = threading.Event(), threading.Event()

        def stay() -> None:
            with engine._readers.lend():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=stay)
        thread.start()
        inside.wait()
        say(f"ended with {forked(lambda: say(attempt(lambda: appended(path, 'B'))))}")
        leave.set()
        thread.join()
        say(f"ended with {forked(lambda: say(attempt(lambda: appended(path, 'B'))))}")


def dropping_what_was_inherited(path: str, say: Callable[[str], None]) -> None:
    """To SQLite in the child, the child is the last process that has the log open. It drops all connections."""
    stores = [fencepost.open(path)]
    stores[0].append([Event("A")])
    list(stores[0].read())
    seen, go = os.pipe()
    process = os.fork()
    if process == 0:
        os.read(seen, 1)  # until the parent has closed the store, and another process has written to it
        stores.clear()
        gc.collect()
        say(f"log: {Path(f'{path}-wal').exists()}")
        sys.exit(0)
    stores.pop().close()
    with fencepost.open(path) as store:
        store.append([Event("B")])
        os.write(go, b"x")
        _, status = os.waitpid(process, 0)
        say(f"ended with {status}")
        say(attempt(lambda: store.append([Event("C")]).first))


def dropping_connections_beside_the_log_of_a_killed_process(path: str, say: Callable[[str], None]) -> None:
    """No process holds a lock, so SQLite in the child would take itself for the last user and delete the log."""
    stores = [fencepost.open(path)]
    stores[0].append([Event("A")])
    seen, go = os.pipe()
    process = os.fork()
    if process == 0:
        os.read(seen, 1)  # until the parent has closed the store, and a killed process has left a log
        stores.clear()
        gc.collect()
        sys.exit(0)
    stores.pop().close()
    killed = subprocess.run([sys.executable, "-c", APPEND_AND_DIE, path], env=same_path(), check=False)
    assert killed.returncode == -signal.SIGKILL
    os.write(go, b"x")
    _, status = os.waitpid(process, 0)
    say(f"ended with {status}")


APPEND_AND_DIE = """
import os, signal, sys
import fencepost

store = fencepost.open(sys.argv[1])
store.append([fencepost.Event("B")])
os.kill(os.getpid(), signal.SIGKILL)
"""


def by_multiprocessing(path: str, say: Callable[[str], None]) -> None:
    with fencepost.open(path) as store:
        store.append([Event("A")])
        for method in ("spawn", "forkserver", "fork"):
            queue = multiprocessing.get_context(method)
            process = queue.Process(target=worker, args=(path, method, sys.argv[1]))  # type: ignore[attr-defined]
            process.start()
            process.join()
            say(f"ended with {process.exitcode}")
        say(attempt(lambda: store.append([Event("Z")]).first))


def worker(path: str, method: str, reports: str) -> None:
    report(reports, f"{method}: {attempt(lambda: appended(path, method))}")


def main(reports: str, scenario: str, path: str) -> None:
    globals()[scenario](path, lambda line: report(reports, line))


if __name__ == "__main__":
    main(*sys.argv[1:])
