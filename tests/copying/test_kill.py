"""`kill -9` in the middle of a copy or an import: run again, it ends with an equal store."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from tests.cli.conftest import Cli
from tests.copying.conftest import fill, log

import fencepost
from fencepost import StoreError

EVENTS = 60_000
PATIENCE_S = 60


def kill_in_the_middle(process: subprocess.Popen[bytes], target: Path) -> int:
    """Kill the process when it has stored a part, and return the head of the target."""
    deadline = monotonic() + PATIENCE_S
    while head_of(target) == 0:
        assert process.poll() is None, process.communicate()
        assert monotonic() < deadline
        sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return head_of(target)


def head_of(path: Path) -> int:
    try:
        with fencepost.open(path, create=False, read_only=True) as store:
            return store.head()
    except StoreError:  # the process is still making the file
        return 0


def big(path: Path) -> str:
    with fencepost.open(path, record_conditions=True) as store:
        fill(store, EVENTS, step=1_000)
    return str(path)


def test_a_killed_copy_is_run_again(cli: Cli, process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    source, target = big(tmp_path / "source.db"), tmp_path / "target.db"
    head = kill_in_the_middle(process("copy", source, str(target)), target)
    assert 0 < head < EVENTS
    (said,) = cli("copy", source, str(target)).lines
    assert (said["head"], said["events"], said["verified"]) == (EVENTS, EVENTS - head, True)
    assert log(str(target)) == log(source)
    assert cli("verify", str(target)).code == 0


def test_a_killed_import_is_run_again(
    cli: Cli, process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    source, lines, target = big(tmp_path / "source.db"), str(tmp_path / "log.jsonl"), tmp_path / "target.db"
    assert cli("export", source, lines).code == 0
    head = kill_in_the_middle(process("import", str(target), lines), target)
    assert 0 < head < EVENTS
    assert cli("import", str(target), lines).lines == [{"events": EVENTS - head, "head": EVENTS}]
    assert log(str(target)) == [entry for entry in log(source) if isinstance(entry, tuple)]
