"""`python -m tests.brokers.soak`: random kills, suspensions and restarts of workers and brokers, from a printed seed.

Three processes publish a topic to Redis (one worker) and to NATS (two partitions) while events are appended. At the
end, a receiver of either broker that ignores ids it has seen has every event once, in order for each key.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

from tests.consumers.places import control, eventually
from tests.support.processes import Child

import fencepost
from fencepost import EventStore
from fencepost.consumers import status
from fencepost.consumers.consumer_status import names

from . import test_nats, test_redis, worker
from .scenario import add, check_delivery
from .servers import nats_server, redis_server

WORKERS = 3
SUSPENDED_S = 2.5 * worker.LEASE_S


class Soak:
    """Runs workers and brokers in a folder, and disturbs them."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.actions: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._folder, self._stack = folder, stack
        for name in ("redis", "nats"):
            (folder / name).mkdir()
        self.redis = test_redis.Server(stack.enter_context(redis_server(folder / "redis")))
        self.nats = test_nats.Server(stack.enter_context(nats_server(folder / "nats")))
        self.redis.start()
        self.nats.start()
        self.nats.ask(test_nats._create, "soak")
        self._workers: list[Child] = []
        self._started = 0

    def _start_worker(self) -> None:
        self._started += 1
        reports = self._folder / f"worker-{self._started}"
        arguments = (self._folder / "log.db", self.redis.url, self.nats.url, self._folder / "stop")
        child = self._stack.enter_context(Child(worker.__file__, reports, *arguments))
        child.wait_for(1)
        self._workers.append(child)

    def run(self, seconds: float) -> None:
        with fencepost.open(self._folder / "log.db") as store:
            for _ in range(WORKERS):
                self._start_worker()
            deadline = monotonic() + seconds
            while monotonic() < deadline:
                add(store, self._random.randrange(5, 60))
                self._disturb()
            eventually(lambda: len(names(store)) == 2)
            eventually(lambda: all(each.lag_events == 0 for each in status(store)), "everything is published")
            (self._folder / "stop").touch()
            for child in self._workers:
                child.result()
            self._check(store)

    def _disturb(self) -> None:
        action = self._random.choice(["nothing", "nothing", "kill", "suspend", "restart redis", "restart nats"])
        self.actions[action] += 1
        if action == "kill":
            self._workers.pop(self._random.randrange(WORKERS)).kill()
            self._start_worker()
        elif action == "suspend":
            number = self._random.choice(self._workers)._process.pid
            os.kill(number, signal.SIGSTOP)
            sleep(SUSPENDED_S)
            os.kill(number, signal.SIGCONT)
        elif action == "restart redis":
            self.redis.broker.kill()
            sleep(self._random.random())
            self.redis.start()
        elif action == "restart nats":
            self.nats.broker.terminate()  # not killed: it acknowledges before it has written to its file
            sleep(self._random.random())
            self.nats.start()
        else:
            sleep(self._random.random() / 5)

    def _check(self, store: EventStore) -> None:
        for name in names(store):
            assert control(store, name).dead_letters == {}
        entries = [(each[b"id"].decode(), each[b"key"].decode()) for each in self.redis.entries("soak")]
        self.actions["twice in redis"] = check_delivery(store, entries)
        bodies = [json.loads(each.data) for each in self.nats.entries("soak")]
        self.actions["twice in nats"] = check_delivery(store, [(each["id"], each["partitionkey"]) for each in bodies])
        assert self.actions["twice in nats"] == 0
        self.actions["events"] = len(bodies)


def run(seconds: float, seed: int) -> Counter[str]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-brokers-")))
        soak = Soak(folder, seed, stack)
        soak.run(seconds)
        return soak.actions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long workers and brokers are disturbed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    chosen = parser.parse_args()
    print(f"brokers: {chosen.seconds:.0f} s, --seed {chosen.seed}", flush=True)
    print(f"brokers: all promises were kept; {dict(run(chosen.seconds, chosen.seed))}", flush=True)


if __name__ == "__main__":
    main()
