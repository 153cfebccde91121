"""Seeded workloads on the simulator: a few callers decide and append, and one caller reads.

Their strings are so few that they meet all the time. The seed decides everything: what they do,
whose step comes next, which step fails and how. The history checker says what is wrong with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from tests.support.simulated_fdb import Faults, Schedule, SimulatedCluster

from fencepost import AppendCondition, AppendRefused, Event, EventStore, Query, QueryItem, SequencedEvent, StoreError
from fencepost.testing.clients import Answered, ClientStore, History, Outcome
from fencepost.testing.history import Violation, check

from .clusters import engine_on

TYPES = ("A", "B")
TAGS = ("x", "y", "z")
RATES = (0.0, 0.02, 0.1, 0.3)


@dataclass(slots=True)
class Ran:
    histories: list[History]
    log: list[SequencedEvent]
    conflicts: int
    steps: int

    @property
    def outcomes(self) -> Iterator[Outcome]:
        for history in self.histories:
            yield from (entry.outcome for entry in history if isinstance(entry, Answered))

    def violations(self) -> list[Violation]:
        return check(self.histories, self.log, gapless=False)


def random_item(chance: random.Random, *, most_tags: int = 3) -> QueryItem:
    types = chance.sample(TYPES, chance.choice([0, 1, 1, 2]))
    return QueryItem(types=types, tags=chance.sample(TAGS, min(chance.choice([0, 1, 1, 2, 3]), most_tags)))


def random_query(chance: random.Random, *, most_tags: int = 3) -> Query:
    return Query([random_item(chance, most_tags=most_tags) for _ in range(chance.choice([1, 1, 2]))])


def random_event(chance: random.Random, id: UUID | None = None) -> Event:
    tags = chance.sample(TAGS, chance.choice([0, 1, 2, 3]))
    return Event(chance.choice(TYPES), data=b"%d" % chance.randrange(1_000), tags=tags, id=id)


def run(seed: int, *, callers: int = 3, rounds: int = 2, rate: float | None = None) -> Ran:
    chance = random.Random(seed)
    schedule = Schedule(seed)
    cluster = SimulatedCluster(seed, rows_per_reply=chance.choice([1, 2, 10, 10_000]))
    store = EventStore(engine_on(cluster, partitions=chance.choice([1, 2, 4, 16])))
    cluster.faults = Faults(seed, rate=chance.choice(RATES) if rate is None else rate)
    recoveries = random.Random(f"{seed}/recoveries")

    def step(name: str) -> None:
        if recoveries.random() < 0.005:
            cluster.recover()
        schedule.step(name)

    cluster.on_step = step
    client_stores = [ClientStore(store, str(number)) for number in range(callers + 1)]

    def client(client_store: ClientStore) -> Callable[[], None]:
        chance = random.Random(f"{seed}/{client_store.client}")
        act = read if client_store.client == "0" else decide

        def act_repeatedly() -> None:
            for _ in range(rounds):
                with suppress(AppendRefused, StoreError):
                    act(client_store, chance)

        return act_repeatedly

    schedule.run([client(client_store) for client_store in client_stores])
    cluster.on_step = None
    cluster.faults = Faults()
    cluster.deliver()  # what was still under way arrives now, if it can
    log = list(store.read())
    return Ran([client_store.history for client_store in client_stores], log, cluster.conflicts, schedule.steps)


def read(store: ClientStore, chance: random.Random) -> None:
    list(store.read(random_query(chance), backwards=False))


def decide(store: ClientStore, chance: random.Random) -> None:
    with_ids = chance.random() < 0.3
    conditions = []
    for _ in range(chance.choice([0, 1, 1, 1, 2])):
        query = random_query(chance)
        reading = store.read(query)
        seen = list(reading)
        boundary = chance.choice([0, reading.head, seen[-1].position if seen else 0])
        conditions.append(AppendCondition(query, after=boundary))
    store.append(
        # Few ids, so that appends share all of them, or some.
        [random_event(chance, UUID(int=1 + n) if with_ids else None) for n in range(chance.choice([1, 1, 2, 3]))],
        conditions,
        unless=random_query(chance) if chance.random() < 0.15 else None,
        checkpoint=("name", chance.randint(1, 5)) if chance.random() < 0.2 else None,
    )
