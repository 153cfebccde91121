"""One soak run: processes share consumers while they are killed, suspended, ended and paused at random, from a seed.

Events are appended all the time. At the end everyone runs again, every consumer catches up, and what was promised is
checked: every event handled, the events of each key in order, effects exactly once, the read model equal to a
fresh fold. `planted` replaces the program of the processes, for tests that break a promise on purpose.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.soak import worker
from tests.soak.consumers import LEASE_S, Added, Moved, read_model
from tests.support.processes import same_path

import fencepost
from fencepost import EventStore
from fencepost.consumers import pause, resume, status, verify
from fencepost.consumers.sql_targets import connect_postgres
from fencepost.core.address import Address
from fencepost.decisions import encode
from fencepost.errors import FencepostError

KEYS = [f"key-{number}" for number in range(40)]
TABLES = ("shared", "single")
CATCH_UP_S = 180.0


@dataclass
class Process:
    popen: subprocess.Popen[str]
    resumes_at: float | None = None  # when a suspended one goes on


@dataclass
class Soak:
    """The state of a run. `actions` counts what was done to the processes."""

    address: str
    into: str
    folder: Path
    seed: int
    workers: int = 3
    program: str = worker.__file__
    actions: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.processes: list[Process] = []
        self.file = self.folder / "lines"
        self._count = 0

    def run(self, seconds: float) -> None:
        """Run for so long, catch up, and check everything. Raises AssertionError."""
        self._create_tables()
        with fencepost.open(self.address) as store:
            try:
                for _ in range(self.workers):
                    self._start()
                deadline = monotonic() + seconds
                while monotonic() < deadline:
                    self._append(store)
                    self._resume_suspended()
                    if self.chance.random() < 0.25:
                        self._disturb(store)
                    sleep(self.chance.random() * 0.2)
                self._calm(store)
                self.check(store)
            finally:
                self._kill_all()

    def _append(self, store: EventStore) -> None:
        events: list[Added | Moved] = []
        for _ in range(self.chance.randrange(1, 40)):
            source, target = self.chance.sample(KEYS, 2)
            events.append(Moved(source, target) if self.chance.random() < 0.05 else Added(source, 1))
        try:
            store.append([encode(each) for each in events])
        except FencepostError:  # a suspended process holds the lock of the file
            self.actions["append refused"] += 1

    def _start(self) -> None:
        self._count += 1
        reports = self.folder / f"worker-{self._count}"
        command = [sys.executable, self.program, str(reports), self.address, self.into, str(self.file)]
        self.processes.append(Process(subprocess.Popen(command, env=same_path(), text=True)))

    def _disturb(self, store: EventStore) -> None:
        action = self.chance.choice(["kill", "suspend", "suspend", "end", "pause", "resume"])
        self.actions[action] += 1
        running = [each for each in self.processes if each.resumes_at is None]
        if action in ("pause", "resume"):
            self._command(store, pause if action == "pause" else resume)
        elif running:
            chosen = self.chance.choice(running)
            if action == "suspend":
                chosen.popen.send_signal(signal.SIGSTOP)
                chosen.resumes_at = monotonic() + self.chance.uniform(0.1, 3 * LEASE_S)
                return
            chosen.popen.send_signal(signal.SIGKILL if action == "kill" else signal.SIGTERM)
            if action == "kill":
                chosen.popen.wait()
            self.processes.remove(chosen)
            self._start()

    def _command(self, store: EventStore, command: Callable[..., Any]) -> None:
        try:
            command(store, self.chance.choice(["shared", "single", "reactions", "lines"]), by="soak")
        except FencepostError:  # it has not run yet, or a suspended process holds the lock of the file
            self.actions["command refused"] += 1

    def _resume_suspended(self) -> None:
        for each in self.processes:
            if each.resumes_at is not None and each.resumes_at <= monotonic():
                each.popen.send_signal(signal.SIGCONT)
                each.resumes_at = None

    def _calm(self, store: EventStore) -> None:
        """Let everyone go on, and wait until everything is handled."""
        for each in self.processes:
            each.popen.send_signal(signal.SIGCONT)
            each.resumes_at = None
        deadline = monotonic() + CATCH_UP_S
        while True:
            found = status(store)
            for each in found:
                if each.paused_by is not None:
                    resume(store, each.name)
            if len(found) == 5 and not any(each.lag_events for each in found):
                return
            assert monotonic() < deadline, f"not caught up: {[(s.name, s.state, s.lag_events, s.error) for s in found]}"
            dead = [each.popen.returncode for each in self.processes if each.popen.poll() is not None]
            assert not dead, f"processes have ended with {dead}"
            sleep(0.1)

    def check(self, store: EventStore) -> None:
        tags = {event.position: event.tags for event in store.read() if event.type in ("Added", "Moved")}
        for table in TABLES:
            assert_once_in_order(table, self._rows(f"SELECT position FROM {table} ORDER BY number"), tags)
        reacted = [int(event.data) for event in store.read() if event.type == "Reacted"]
        assert_once_in_order("reactions", reacted, tags)
        lines = [int(line) for line in self.file.read_text().splitlines()]
        assert_once_in_order("lines", list(dict.fromkeys(lines)), tags)
        drift = verify(read_model(self.into), store)
        assert drift is None, f"the read model differs: {drift}"

    def _connect(self) -> Any:
        if "://" in self.into:
            return connect_postgres(Address.parse(self.into))
        return sqlite3.connect(self.into, timeout=60)

    def _create_tables(self) -> None:
        number = "BIGSERIAL PRIMARY KEY" if "://" in self.into else "INTEGER PRIMARY KEY AUTOINCREMENT"
        connection = self._connect()
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} (number {number}, position BIGINT, pid BIGINT)")
        connection.commit()
        connection.close()

    def _rows(self, statement: str) -> list[int]:
        connection = self._connect()
        try:
            return [int(position) for (position,) in connection.execute(statement).fetchall()]
        finally:
            connection.close()

    def _kill_all(self) -> None:
        for each in self.processes:
            each.popen.send_signal(signal.SIGKILL)
            each.popen.wait()


def assert_once_in_order(name: str, handled: Iterable[int], tags: dict[int, frozenset[str]]) -> None:
    """Every event once, and the events of each key in order."""
    handled = list(handled)
    missing, extra = tags.keys() - set(handled), len(handled) - len(set(handled))
    assert not missing, f"{name}: {len(missing)} events were not handled, the first at {min(missing)}"
    assert extra == 0, f"{name}: {extra} events were handled twice"
    last: dict[str, int] = {}
    for position in handled:
        for tag in tags[position]:
            before = last.get(tag, 0)
            assert before < position, f"{name}: the event at {position} of {tag} was handled after {before}"
            last[tag] = position
