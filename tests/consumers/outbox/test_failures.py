"""A message that fails, and a publisher that fails, are different things: the first becomes a dead letter, the second
is waited for. Neither stops the other outboxes, and each key keeps its order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.consumers.places import Place, add, control, eventually

import fencepost
from fencepost import EventStore
from fencepost.consumers import Failures, dead_letters, replay, reset, start, status
from fencepost.consumers.outbox import (
    Breaker,
    CircuitChanged,
    Message,
    MessageRefused,
    MessagesPublished,
    Outbox,
    PublisherUnavailable,
    WebhookPublisher,
)
from fencepost.core.observers import observe

from .receivers import QUICK, TOPIC, Collector, Receiver, add_keys, first_seen

TWICE = Failures(attempts=2, base_s=0.01, then="set aside", key="key")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with fencepost.open(tmp_path / "log.db") as store:
        yield store


class Poison:
    """Positions that cannot be published, and how the publisher says so."""

    def __init__(self, *positions: int, by: str = "refusal") -> None:
        self.positions = set(positions)
        self.by = by

    def __call__(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.event.position in self.positions:
                raise MessageRefused(message, "poison") if self.by == "refusal" else ValueError("poison")


def outbox(publisher: Any, name: str = "o", **options: Any) -> Outbox:
    return Outbox(name, TOPIC, publisher, **{"lease_s": 1, "failures": TWICE, "breaker": QUICK, **options})


def letters(store: EventStore, name: str = "o") -> list[int]:
    return sorted(control(store, name).dead_letters)


@pytest.mark.parametrize("by", ["refusal", "any other error"])
def test_a_poison_message_is_set_aside_and_its_key_held_back_while_others_go_on(place: Place, by: str) -> None:
    poison = Poison(2, by=by)
    collector = Collector(poison)
    with place.open() as store:
        add_keys(store, "abcabcabc")
        with start(store, outbox(collector)):
            eventually(lambda: letters(store) == [2, 5, 8])
            eventually(lambda: sorted(set(collector.positions)) == [1, 3, 4, 6, 7, 9])
            first, second, _ = dead_letters(store, "o")
            assert (first.attempts, second.behind) == (2, 2)
            assert "poison" in first.error
            poison.positions.clear()
            replay(store, "o")
            eventually(lambda: letters(store) == [])
    assert first_seen([message.id for message in collector.messages if message.key == "b"]) == [
        "/tests#2",
        "/tests#5",
        "/tests#8",
    ]


@pytest.mark.parametrize("by", ["refusal", "any other error"])
def test_a_whole_batch_of_poison_does_not_stop_the_others(store: EventStore, by: str) -> None:
    for key in range(30):
        add(store, 1, key=str(key))
    collector = Collector(Poison(*range(5, 15), by=by))
    with start(store, outbox(collector, batch=10)):
        eventually(lambda: len(set(collector.positions)) == 20)
        eventually(lambda: letters(store) == list(range(5, 15)))
    assert first_seen([message.id for message in collector.messages]) == [
        f"/tests#{each}" for each in range(1, 31) if not 5 <= each < 15
    ]


def test_a_refused_message_does_not_make_the_others_wait_for_the_publisher(
    store: EventStore, caplog: pytest.LogCaptureFixture
) -> None:
    add_keys(store, "abcde")
    collector = Collector(Poison(3))
    failing = outbox(collector)
    with start(store, failing):
        eventually(lambda: letters(store) == [3])
        eventually(lambda: set(collector.positions) == {1, 2, 4, 5})
    assert failing.circuit.failures == 0
    assert not any("trying again in" in record.getMessage() for record in caplog.records)


def test_a_replay_that_fails_again_stays_a_dead_letter(store: EventStore) -> None:
    add_keys(store, "a")
    collector = Collector(Poison(1))
    with start(store, outbox(collector)):
        eventually(lambda: letters(store) == [1])
        replay(store, "o")
        eventually(lambda: control(store, "o").dead_letters[1].attempts == 3)
        add_keys(store, "b")
        eventually(lambda: collector.positions != [])
    assert letters(store) == [1]


def test_what_was_collected_before_a_message_in_doubt_is_published_before_it(store: EventStore) -> None:
    add_keys(store, "abcde")
    collector = Collector(Poison(3))
    with start(store, outbox(collector)):
        eventually(lambda: letters(store) == [3])
        eventually(lambda: set(collector.positions) == {1, 2, 4, 5})
        collector.batches.clear()
        reset(store, "o")  # 3 is still known to be in doubt, and the events before it are not
        eventually(lambda: letters(store) == [3])
        eventually(lambda: set(collector.positions) >= {4, 5})
    assert first_seen([message.id for message in collector.messages]) == [f"/tests#{each}" for each in (1, 2, 4, 5)]


def test_an_outbox_can_stop_at_a_message_instead(store: EventStore) -> None:
    add_keys(store, "abc")
    collector = Collector(Poison(2))
    with start(store, outbox(collector, failures=Failures(attempts=2, base_s=0.01))):
        stopped = eventually(lambda: control(store, "o").stopped)
        assert stopped.position == 2
    assert set(collector.positions) == {1}


@pytest.mark.parametrize(
    "error", [PublisherUnavailable("maintenance"), ConnectionRefusedError("refused"), TimeoutError()]
)
def test_an_outage_makes_no_dead_letter_however_long_it_is(store: EventStore, error: Exception) -> None:
    down = True

    def trouble(messages: Sequence[Message]) -> None:
        if down:
            raise error

    collector = Collector(trouble)
    add_keys(store, "abcabc")
    with start(store, outbox(collector, failures=Failures(attempts=1, then="set aside", key="key"))):
        eventually(lambda: collector.calls > 4)
        down = False
        eventually(lambda: len(collector.messages) >= 6)
    assert letters(store) == []
    assert first_seen([message.id for message in collector.messages]) == [f"/tests#{each}" for each in range(1, 7)]
    assert collector.closed > 0  # after each failure, so that the next attempt has a fresh connection


def test_a_publisher_that_fails_is_left_alone_and_tested_with_one_message(store: EventStore) -> None:
    down = True
    sizes: list[int] = []

    def trouble(messages: Sequence[Message]) -> None:
        sizes.append(len(messages))
        if down:
            raise PublisherUnavailable("maintenance")

    seen: list[CircuitChanged] = []
    other, collector = Collector(), Collector(trouble)
    failing = outbox(collector, breaker=Breaker(failures=2, base_s=0.01, cap_s=0.01))

    def observer(observation: object) -> None:
        if isinstance(observation, CircuitChanged):
            seen.append(observation)

    add_keys(store, "abcabc")
    with observe(observer, of=store), start(store, failing, outbox(other, "other")):
        eventually(lambda: len(other.messages) == 6)  # another outbox goes on
        eventually(lambda: len(sizes) >= 4)
        assert failing.circuit.state in ("open", "half-open")
        down = False
        eventually(lambda: len(collector.messages) == 6)
        eventually(lambda: failing.circuit.state == "closed")
    assert sizes[:2] == [6, 6]
    assert set(sizes[2:-1]) == {1}  # the tests
    assert sizes[-1] == 5
    assert [each.state for each in seen[:2]] == ["open", "half-open"]
    assert seen[-1] == CircuitChanged("o", "closed", 0, "PublisherUnavailable: maintenance")


def test_while_the_circuit_is_open_the_publisher_is_not_called_and_the_status_says_why(store: EventStore) -> None:
    def trouble(messages: Sequence[Message]) -> None:
        raise PublisherUnavailable("maintenance")

    collector = Collector(trouble)
    failing = outbox(collector, breaker=Breaker(failures=2, base_s=3600, cap_s=3600))
    add_keys(store, "ab")
    with start(store, failing):
        eventually(lambda: control(store, "o").token_of(0))
        found = eventually(lambda: next((each for each in status(store, ["o"]) if each.state == "stalled"), None))
    assert "circuit is open after 2 failures" in found.error
    assert "maintenance" in found.error
    assert collector.calls == 2


def test_a_receiver_that_comes_back_gets_everything_in_order(store: EventStore) -> None:
    add_keys(store, "abcabcabc")
    with Receiver(lambda number, body: 503 if 3 <= number <= 5 else 200) as receiver:
        with start(store, outbox(WebhookPublisher(receiver.url))):
            eventually(lambda: len(set(receiver.ids)) == 9)
        assert first_seen(receiver.ids) == [f"/tests#{each}" for each in range(1, 10)]
    assert letters(store) == []


def test_a_receiver_that_refuses_one_message_of_a_batch_gets_the_others(store: EventStore) -> None:
    add_keys(store, "abcd")
    with Receiver(lambda number, body: 422 if b'"/tests#3"' in body else 200) as receiver:
        with start(store, outbox(WebhookPublisher(receiver.url, batched=True))):
            eventually(lambda: letters(store) == [3])
            eventually(lambda: len(set(receiver.ids)) == 3)
        assert first_seen(receiver.ids) == ["/tests#1", "/tests#2", "/tests#4"]


def test_a_message_on_which_the_publisher_hangs_is_found_and_set_aside(store: EventStore) -> None:
    forever = threading.Event()

    def trouble(messages: Sequence[Message]) -> None:
        if any(message.event.position == 3 for message in messages):
            forever.wait(300)
            raise ConnectionAbortedError("the test is over")

    add_keys(store, "abcde")
    collector = Collector(trouble)
    failures = Failures(attempts=1, base_s=0.01, then="set aside", key="key", timeout_s=0.3)
    try:
        with start(store, outbox(collector, failures=failures)):
            eventually(lambda: letters(store)[:1] == [3])
            eventually(lambda: len(set(collector.positions)) + len(letters(store)) == 5)
    finally:
        forever.set()
    assert 5 in letters(store) or 5 in collector.positions


def test_what_was_published_is_observed(store: EventStore) -> None:
    seen: list[MessagesPublished] = []
    add_keys(store, "abc")
    collector = Collector()

    def observer(observation: object) -> None:
        if isinstance(observation, MessagesPublished):
            seen.append(observation)

    with observe(observer, of=store), start(store, outbox(collector)):
        eventually(lambda: sum(each.messages for each in seen) == 3)
    assert {each.consumer for each in seen} == {"o"}
