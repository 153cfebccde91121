"""Signal handlers that use the store at random moments: they append, read, subscribe, and join threads that append.

For each engine a process of its own appends and reads in its main thread, beside threads that append as well. Its
parent sends it SIGUSR1 again and again, and the handler uses the same store. No call may hang, inside a handler or
outside, and every acknowledged append is stored once, at the returned position.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import subprocess
import sys
import threading
import time
from uuid import UUID, uuid4

from tests.torture.interrupts import ENGINES, HANG_S, SWITCH_S, opened

from fencepost import Event, EventStore, Query

PAUSES_S = (100e-6, 1e-3, 10e-3)  # between two signals, on average; each burst has one of them
BURST = 50
THREADS = 2


def run(seconds: float, seed: int) -> str:
    return ", ".join(attack_in_process(engine, seconds / len(ENGINES), seed) for engine in ENGINES)


def attack_in_process(engine: str, seconds: float, seed: int) -> str:
    command = [sys.executable, "-m", "tests.torture.handlers", engine, str(seconds), str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    chance = random.Random(seed)
    if child.stdout.readline() == "ready\n":
        end = time.monotonic() + seconds
        while time.monotonic() < end and child.poll() is None:
            pause_s = chance.choice(PAUSES_S)
            for _ in range(BURST):
                time.sleep(chance.expovariate(1 / pause_s))
                child.send_signal(signal.SIGUSR1)
    stdout, stderr = child.communicate(timeout=4 * HANG_S)
    assert child.returncode == 0, f"{engine}, seed {seed}: exit {child.returncode}\n{stdout}{stderr}"
    counts = json.loads(stdout)
    return f"{engine}: {counts['handled']} handlers, {counts['acknowledged']} appends acknowledged"


class Attack:
    def __init__(self, store: EventStore, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.handled = 0
        self.in_handler = False
        self.over = False
        self.told: dict[UUID, int] = {}
        self.failures: list[BaseException] = []

    def append(self) -> None:
        id = uuid4()
        self.told[id] = self.store.append([Event("T", tags={f"t:{random.randrange(8)}"}, id=id)]).first

    def read(self) -> None:
        list(self.store.read(Query.of(tags={f"t:{random.randrange(8)}"}), limit=20, backwards=True))

    def subscribe(self) -> None:
        for _ in self.store.subscribe(after=max(0, self.store.head() - 5), timeout_s=0):
            break

    def in_thread(self, *, once: bool = False) -> None:
        try:
            while not self.over:
                self.append()
                if once:
                    return
        except BaseException as error:
            self.failures.append(error)
            raise

    def join_a_thread(self) -> None:
        thread = threading.Thread(target=self.in_thread, kwargs={"once": True})
        thread.start()
        thread.join()

    def handle(self, number: int, frame: object) -> None:
        if self.in_handler or self.over:  # a handler that is interrupted by itself again and again would never end
            return
        self.in_handler = True
        try:
            self.chance.choice((self.append, self.read, self.store.head, self.subscribe, self.join_a_thread))()
            self.handled += 1
        finally:
            self.in_handler = False


def attack(engine: str, seconds: float, seed: int) -> dict[str, int]:
    with opened(engine) as store:
        attack = Attack(store, seed)
        sys.setswitchinterval(SWITCH_S)
        signal.signal(signal.SIGUSR1, attack.handle)
        threads = [threading.Thread(target=attack.in_thread, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not attack.failures:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            random.choice((attack.append, attack.append, attack.read, store.head, attack.subscribe))()
        attack.over = True
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it would end a process that is about to exit
        faulthandler.cancel_dump_traceback_later()
        assert not attack.failures, attack.failures[0]
        stored = {event.id: event.position for event in store.read()}
        assert len(stored) == store.head() or engine == "foundationdb"
        assert stored == attack.told, "every acknowledged append is stored once, at the returned position"
        return {"handled": attack.handled, "acknowledged": len(attack.told)}


if __name__ == "__main__":
    print(json.dumps(attack(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))))
