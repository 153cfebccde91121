"""What every broker has to survive: it goes away while an outbox publishes, and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.consumers.places import Added, control, eventually

import fencepost
from fencepost import Event, EventStore
from fencepost.consumers import start
from fencepost.consumers.outbox import Breaker, Message, Outbox, Topic
from fencepost.decisions import encode

KEYS = "abcdefg"


def topic(name: str) -> Topic:
    return Topic(name, source="/tests", types={Added, "Other"}, key="key")


@contextmanager
def log(folder: Path) -> Iterator[EventStore]:
    with fencepost.open(folder / "log.db") as store:
        yield store


def messages(store: EventStore, name: str, *events: Event) -> list[Message]:
    store.append(events)
    return [Message(topic(name), event) for event in store.read()]


def add(store: EventStore, count: int) -> None:
    store.append([encode(Added(KEYS[number % len(KEYS)], number)) for number in range(count)])


def publish_through_an_outage(
    store: EventStore, name: str, publisher: Any, go_away: Callable[[], None], come_back: Callable[[], None]
) -> None:
    """Publish 600 events; the broker goes away after some of them, and comes back when all are stored."""
    breaker = Breaker(failures=2, base_s=0.2, cap_s=1.0)
    outbox = Outbox(name, topic(name), publisher, batch=20, lease_s=5, breaker=breaker)
    add(store, 200)
    with start(store, outbox):
        eventually(lambda: store.checkpoint(name) >= 60, "the first 60 events")
        add(store, 200)
        go_away()
        add(store, 200)
        eventually(lambda: outbox.circuit.state != "closed", "the circuit opens")
        come_back()
        eventually(lambda: store.checkpoint(name) >= last(store), "the rest")
    assert control(store, name).dead_letters == {}


def last(store: EventStore) -> int:
    return max(event.position for event in store.read() if event.type == "Added")


def check_delivery(store: EventStore, received: Sequence[tuple[str, str]]) -> int:
    """A receiver that ignores ids that it has seen gets each event once, in order for each key; how many were twice."""
    seen = dict.fromkeys(received)
    expected: dict[str, list[str]] = {key: [] for key in KEYS}
    for event in store.read():
        if event.type == "Added":
            (key,) = (tag.partition(":")[2] for tag in event.tags)
            expected[key].append(f"/tests#{event.position}")
    found: dict[str, list[str]] = {key: [] for key in KEYS}
    for id, key in seen:
        found[key].append(id)
    assert found == expected
    return len(received) - len(seen)
