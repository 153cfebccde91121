"""A child that may not write to a store, and tries every operation on it."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import fencepost
from fencepost import Event, FencepostError, Query
from fencepost.cli.app import run
from fencepost.engines.sqlite import backup, verify

NOBODY = 65_534


def attempt(call: Callable[[], object]) -> str:
    try:
        return f"{call()}"
    except FencepostError as error:
        return f"{type(error).__name__}: {error}"


def command(*arguments: str) -> str:
    """The exit code, and the beginning of what it says."""
    written = io.BytesIO()
    said = io.TextIOWrapper(written, "utf-8", write_through=True)
    with redirect_stdout(said), redirect_stderr(said):
        code = run(arguments)
    return f"{code} {written.getvalue()[:400].decode()}".replace("\n", " ").strip()


def use(path: str, folder: Path, say: Callable[[str], object]) -> None:
    """Open, read, follow, verify and copy the store, and try to append to it."""
    with fencepost.open(path) as store:
        say(attempt(store.head))
        say(attempt(lambda: len(list(store.read()))))
        say(attempt(lambda: len(list(store.read(Query.of(tags={"a"}))))))
        say(attempt(lambda: len(list(store.subscribe(timeout_s=0)))))
        say(attempt(lambda: store.append([Event("Refused")])))
    say(attempt(lambda: verify(path).problems))
    say(attempt(lambda: backup(path, folder / "copy.db")))
    for name in ("head", "read", "tail", "stats", "verify"):
        say(f"{name} {command(name, path)}")


def look(path: str, folder: Path, say: Callable[[str], object]) -> None:
    say(attempt(lambda: fencepost.open(path)))


def look_by_command(path: str, folder: Path, say: Callable[[str], object]) -> None:
    for name in ("head", "read", "verify"):
        say(command(name, path))


def import_everything() -> None:
    """Import it all as root, because other users may not be allowed to read this environment."""
    with tempfile.TemporaryDirectory() as folder:
        with fencepost.open(Path(folder) / "store.db") as store:
            store.append([Event("A")])
        use(str(Path(folder) / "store.db"), Path(folder), lambda line: None)
        look_by_command(str(Path(folder) / "missing.db"), Path(folder), lambda line: None)  # imports the error texts


def main(reports: str, what: str, path: str, folder: str) -> None:
    descriptor = os.open(reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    import_everything()
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    globals()[what](path, Path(folder), lambda line: os.write(descriptor, f"{line}\n".encode()))


if __name__ == "__main__":
    main(*sys.argv[1:])
