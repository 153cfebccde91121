"""Signals at random moments of the main thread, single and in pairs, while threads and subscriptions are at work.

For each engine a process of its own appends, reads and follows a subscription in its main thread, beside threads that
append and follow as well. Its parent sends it SIGINT again and again. No call may hang; every acknowledged append
is stored once, at the returned position; no subscription skips, repeats or reorders an event.

Only signals that raised inside a call of the store are counted. A second signal that raised within a millisecond of the
first one counts as a pair. `--interrupts N` repeats rounds, each on a new store, until every engine had N of them.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

from tests.foundationdb.clusters import engine_on
from tests.support.postgres import PostgresServer
from tests.support.simulated_fdb import SimulatedCluster

import fencepost
from fencepost import AppendCondition, Event, EventStore, Query, StoreError
from fencepost.core.interrupts import HARMLESS
from fencepost.engines.memory import MemoryEngine

HANG_S = 30.0  # a call that takes longer hangs
PAUSES_S = (20e-6, 100e-6, 500e-6)  # between two interrupts, on average; each burst has one of them
BURST = 50
PAIR_S = 1e-3
ROUND_S = 60.0  # after that a new store, so that checking all of its events stays quick
THREAD_PAUSES_S = (0, 0, 1e-3, 5e-3)  # where no disk is waited for, busy threads would leave the main one no time
SWITCH_S = 100e-6  # the main thread runs the handlers, so it must not wait 5 ms for its turn among busy threads
THREADS = 2
ENGINES = ("memory", "sqlite", "postgres", "foundationdb")


def run(seconds: float, seed: int) -> str:
    return ", ".join(
        summary(engine, attack_in_process(engine, seconds / len(ENGINES), seed), rounds=1) for engine in ENGINES
    )


def run_until(interrupts: int, seed: int, engines: Sequence[str] = ENGINES) -> Iterator[str]:
    """Rounds on a new store each, until every engine has had that many interrupts."""
    for engine in engines:
        total: Counter[str] = Counter()
        rounds = 0
        while total["interrupts"] < interrupts:
            total.update(attack_in_process(engine, ROUND_S, seed + rounds, interrupts - total["interrupts"]))
            rounds += 1
            yield summary(engine, total, rounds)


def summary(engine: str, counts: Mapping[str, int], rounds: int) -> str:
    return (
        f"{engine}: {counts['interrupts']} interrupts, {counts['pairs']} in pairs,"
        f" {counts['acknowledged']} appends acknowledged, {counts['stored']} events stored, {rounds} rounds"
    )


def attack_in_process(engine: str, seconds: float, seed: int, interrupts: int = sys.maxsize) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.torture.interrupts", engine, str(seconds), str(seed), str(interrupts)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    chance = random.Random(seed)
    if child.stdout.readline() == "ready\n":
        end = time.monotonic() + seconds
        while time.monotonic() < end and child.poll() is None:
            pause_s = chance.choice(PAUSES_S)
            for _ in range(BURST):
                time.sleep(chance.expovariate(1 / pause_s))
                child.send_signal(signal.SIGINT)
                if chance.random() < 0.5:
                    time.sleep(chance.uniform(0, 1e-3))
                    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=4 * HANG_S)
    assert child.returncode == 0, f"{engine}, seed {seed}: exit {child.returncode}\n{stdout}{stderr}"
    counts: dict[str, int] = json.loads(stdout)
    return counts


@contextmanager
def opened(engine: str) -> Iterator[EventStore]:
    with tempfile.TemporaryDirectory() as folder:
        if engine == "memory":
            store = EventStore(MemoryEngine())
        elif engine == "sqlite":
            store = fencepost.open(Path(folder) / "log.db")
        elif engine == "foundationdb":
            store = EventStore(engine_on(SimulatedCluster()))
        else:
            with PostgresServer(fsync="off") as server, fencepost.open(server.url(), create=True) as store:
                yield store
            return
        with store:
            yield store


class Attack:
    """The results of the appends of all threads, and the interrupts so far."""

    def __init__(self, store: EventStore, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.interrupts = 0  # those that raised
        self.pairs = 0
        self.last_at = 0.0
        self.armed = False
        self.over = False
        self.told: dict[UUID, int] = {}
        self.failures: list[BaseException] = []

    def handle(self, number: int, frame: object) -> None:
        if not self.armed:
            return
        now = time.monotonic()
        self.pairs += now - self.last_at < PAIR_S
        self.last_at = now
        self.interrupts += 1
        raise KeyboardInterrupt

    def attempt(self, action: Callable[[], object]) -> None:
        """Run it with interrupts raised inside, any number of them."""
        try:
            try:
                self.armed = True
                action()
            finally:
                self.armed = False  # Python runs no handler between the exception and this assignment
        except KeyboardInterrupt:
            pass
        except StoreError as error:
            if "interrupted" not in str(error):  # what a leader that was interrupted leaves to its batch
                raise

    def append(self) -> None:
        id = uuid4()
        head = self.store.head()
        tag = f"t:{random.randrange(8)}"
        condition = AppendCondition(Query.of(tags={"never"}), after=head) if random.random() < 0.5 else None
        self.told[id] = self.store.append([Event("T", tags={tag}, id=id, data=b"x" * 40)], condition).first

    def read(self) -> None:
        events = list(self.store.read(Query.of(tags={f"t:{self.chance.randrange(8)}"}), limit=20, backwards=True))
        assert [event.position for event in events] == sorted((event.position for event in events), reverse=True)

    def in_thread(self, action: Callable[[], object]) -> None:
        try:
            while not self.over:
                try:
                    action()
                except StoreError as error:
                    if "interrupted" not in str(error):
                        raise
        except BaseException as error:
            self.failures.append(error)
            raise

    def threads(self, seen: list[int]) -> list[threading.Thread]:
        subscription = self.store.subscribe(timeout_s=0.01)

        def follow() -> None:
            for event in subscription:
                seen.append(event.position)  # noqa: PERF401

        def append() -> None:
            time.sleep(random.choice(THREAD_PAUSES_S))
            self.append()

        actions = [append] * THREADS + [follow]
        return [threading.Thread(target=self.in_thread, args=(action,), daemon=True) for action in actions]


def attack(engine: str, seconds: float, seed: int, interrupts: int) -> dict[str, int]:
    seen: list[int] = []
    seen_by_thread: list[int] = []
    with opened(engine) as store:
        attack = Attack(store, seed)
        sys.setswitchinterval(SWITCH_S)
        signal.signal(signal.SIGINT, attack.handle)
        HARMLESS.add(attack.handle)  # it only raises, as Python's own handler does, so it runs inside commits as well
        subscription = store.subscribe(timeout_s=0)

        def follow() -> None:
            for event in subscription:  # one by one: an interrupt must not undo more than the iteration
                seen.append(event.position)  # noqa: PERF401

        def subscribe_and_leave() -> None:
            for _ in store.subscribe(after=store.head(), timeout_s=0.001):
                break

        actions = (attack.append, attack.append, attack.read, follow, store.head, subscribe_and_leave)
        threads = attack.threads(seen_by_thread)
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end and attack.interrupts < interrupts:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            attack.attempt(attack.chance.choice(actions))
        attack.over = True
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        for thread in threads:
            thread.join()
        assert attack.failures == []
        head, patience_ends = store.head(), time.monotonic() + HANG_S
        while (not seen or seen[-1] < head) and time.monotonic() < patience_ends:
            follow()  # the follower's thread may lag behind the head, and the subscription does not wait for it
        faulthandler.cancel_dump_traceback_later()  # checking millions of events may take longer than any call
        stored = {event.id: event.position for event in store.read()}
        positions = list(stored.values())
        assert seen == positions, f"the main thread's subscription: {first_difference(seen, positions)}"
        assert seen_by_thread == positions[: len(seen_by_thread)], first_difference(seen_by_thread, positions)
        wrong = {id: told for id, told in attack.told.items() if stored.get(id) != told}
        assert not wrong, f"acknowledged, and stored elsewhere or not at all: {wrong}"
        if engine != "foundationdb":
            assert positions == list(range(1, len(positions) + 1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python gives up its handlers when it exits
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    return {
        "interrupts": attack.interrupts,
        "pairs": attack.pairs,
        "acknowledged": len(attack.told),
        "stored": len(positions),
    }


def first_difference(seen: list[int], positions: list[int]) -> str:
    for index, (one, other) in enumerate(zip(seen, positions, strict=False)):
        if one != other:
            return f"at index {index}: {seen[index - 2 : index + 3]} instead of {positions[index - 2 : index + 3]}"
    return f"{len(seen)} events instead of {len(positions)}"


if __name__ == "__main__":
    print(json.dumps(attack(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
