"""Processes that fork at random beside appends, and are killed at random.

A family is a process that opens one store, appends in threads, and has children by `fork`, before and after it
opens the store, or by `spawn`. A child tries to open the same store, and appends if it may; it may have children of
its own. Meanwhile a family closes its store and opens it again, or is killed. Every append that is acknowledged is
reported first, under an id of its own. In the end each of them is in the file exactly once, at the position that was
reported; and a child that was refused was refused with a reason, and did not hang.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from time import monotonic, sleep
from uuid import UUID

import fencepost
from fencepost import Event, EventStore, StoreClosed, StoreUnavailable
from fencepost.engine import verify

from ..support import process_table
from ..support.reporting import report

FAMILIES = 2
PATIENCE_S = 60.0  # a family that has not stopped by then hangs
DEPTH = 2  # children and grandchildren


def run(seconds: float, seed: int) -> str:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path, reports = Path(folder) / "store.db", Path(folder) / "reports"
        fencepost.open(path).close()
        reports.touch()
        killed = _attack(rng, seconds, path, reports)
        lines = [line.split() for line in reports.read_text().splitlines()]
        counts = Counter(line[0] for line in lines)
        broken = [" ".join(line) for line in lines if line[0] == "broken"]
        assert not broken, f"seed {seed}: {broken[:3]}"
        appended = {UUID(line[1]): int(line[2]) for line in lines if line[0] == "appended"}
        assert len(appended) == counts["appended"], f"seed {seed}: an append was reported twice"
        _check(seed, path, appended)
    return (
        f"{counts['appended']} appends acknowledged, {counts['opened']} openings and {counts['refused']} refused in "
        f"forked children, {killed} families killed; each append is there once"
    )


def _attack(rng: random.Random, seconds: float, path: Path, reports: Path) -> int:
    """Start families, kill some of them, and wait for the rest; returns how many were killed."""
    deadline, killed = monotonic() + seconds, 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    families: list[tuple[subprocess.Popen[bytes], float | None]] = []
    try:
        while monotonic() < deadline or families:
            while monotonic() < deadline and len(families) < FAMILIES:
                command = [sys.executable, "-m", __name__, str(path), str(reports), str(rng.randrange(2**32))]
                # Each family is a group of processes, so that its children can be ended with it.
                family = subprocess.Popen(
                    [*command, str(deadline - monotonic())], env=environment, start_new_session=True
                )
                kill_at = monotonic() + rng.uniform(0.3, 3.0) if rng.random() < 0.6 else None
                families.append((family, kill_at))
            sleep(0.01)
            for family, kill_at in list(families):
                if kill_at is not None and monotonic() > kill_at and family.poll() is None:
                    family.kill()  # the parent alone: its children go on
                    killed += 1
                if family.poll() is not None:
                    families.remove((family, kill_at))
            assert monotonic() < deadline + PATIENCE_S, "a family hangs"
        _wait_for_orphans(path, reports)
    finally:
        for family, _ in families:
            family.kill()
            family.wait()
    return killed


def _wait_for_orphans(path: Path, reports: Path) -> None:
    """Wait until processes that outlive their parents have ended too: each reports its start and its end."""
    until = monotonic() + PATIENCE_S
    while True:
        living = Counter[str]()
        for line in reports.read_text().splitlines():
            kind, process = line.split()[0], line.split()[-1]
            if kind in ("began", "ended"):
                living[process] += 1 if kind == "began" else -1
        left = [int(process) for process, count in living.items() if count > 0 and process_table.process(int(process))]
        if not left:
            return
        if monotonic() > until:
            for process in left:
                os.kill(process, signal.SIGKILL)
            raise AssertionError(f"{len(left)} children hang")
        sleep(0.02)


def _check(seed: int, path: Path, appended: dict[UUID, int]) -> None:
    with fencepost.open(path, create=False) as store:
        log = list(store.read())
    assert [event.position for event in log] == list(range(1, len(log) + 1)), f"seed {seed}: positions have gaps"
    positions = {event.id: event.position for event in log}
    assert len(positions) == len(log), f"seed {seed}: an event is stored twice"
    lost = [id for id, position in appended.items() if positions.get(id) != position]
    assert not lost, f"seed {seed}: {len(lost)} of {len(appended)} acknowledged appends are lost or elsewhere"
    assert verify(path).problems == [], f"seed {seed}: {verify(path).problems[:3]}"


class Family:
    """One process and what it does until its time is over; its children are families, too."""

    def __init__(self, path: str, reports: str, seed: int, seconds: float, depth: int = 0) -> None:
        self.path, self.reports = path, reports
        self.rng = random.Random(seed)
        self.deadline = monotonic() + seconds
        self.depth = depth

    def live(self) -> None:
        report(self.reports, f"began {os.getpid()}")
        try:
            while monotonic() < self.deadline:
                try:
                    self._open_and_append()
                except StoreClosed as error:
                    if not (self.depth and "'spawn' or 'forkserver'" in str(error)):
                        raise
                    report(self.reports, f"refused {os.getpid()}")
                    return
        except BaseException as error:
            report(self.reports, f"broken {type(error).__name__} {error}".replace("\n", " "))
        finally:
            report(self.reports, f"ended {os.getpid()}")

    def _open_and_append(self) -> None:
        children = [self._fork()] if self.rng.random() < 0.2 else []
        with fencepost.open(self.path) as store:
            if self.depth:
                report(self.reports, f"opened {os.getpid()}")
            stop = threading.Event()
            thread = threading.Thread(target=self._append_until, args=(store, stop))
            busy = self.rng.random() < 0.5
            if busy:
                thread.start()
            for _ in range(self.rng.randrange(1, 6)):
                self._append(store)
                if self.rng.random() < 0.3:
                    children.append(self._fork())
                if self.depth == 0 and self.rng.random() < 0.05:
                    children.append(self._spawn())
            stop.set()
            if busy:
                thread.join()
        if self.rng.random() < 0.5:
            children.append(self._fork())
        for child in children:
            if child:
                os.waitpid(child, 0)

    def _append_until(self, store: EventStore, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self._append(store)
        except BaseException as error:
            report(self.reports, f"broken {type(error).__name__} {error}".replace("\n", " "))

    def _append(self, store: EventStore) -> None:
        id = UUID(bytes=os.urandom(16))
        try:
            placed = store.append([Event("Happened", tags={"x"}, data=id.bytes, id=id)])
        except StoreUnavailable:  # other processes append as well, and the machine is busy
            return
        report(self.reports, f"appended {id} {placed.first}")

    def _fork(self) -> int:
        """The child's process id; 0 if there is no child."""
        if self.depth >= DEPTH or monotonic() > self.deadline:
            return 0
        seed = self.rng.randrange(2**32)
        process = os.fork()
        if process:
            return process
        try:
            seconds = min(self.deadline - monotonic(), random.Random(seed).uniform(0.0, 0.5))
            Family(self.path, self.reports, seed, seconds, self.depth + 1).live()
        finally:
            os._exit(0)

    def _spawn(self) -> int:
        seconds = min(0.5, max(0.0, self.deadline - monotonic()))
        command = [sys.executable, "-m", "tests.torture.forks", self.path, self.reports]
        return subprocess.Popen([*command, str(self.rng.randrange(2**32)), str(seconds)]).pid


if __name__ == "__main__":
    Family(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])).live()
