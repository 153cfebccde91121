"""The circuit opens after repeated failures, tests itself with one message, and closes again."""

from __future__ import annotations

import logging

import pytest

from fencepost import InvalidInput
from fencepost.consumers.outbox import Breaker, Circuit, PublisherUnavailable


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuit(clock: Clock) -> Circuit:
    return Circuit("o", Breaker(failures=3, base_s=1, cap_s=5), clock=clock)


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        circuit.admit()
        circuit.failed("down")


def test_it_opens_after_repeated_failures_and_not_before(circuit: Circuit) -> None:
    fail(circuit, 2)
    assert circuit.state == "closed"
    fail(circuit, 1)
    assert circuit.state == "open"
    with pytest.raises(PublisherUnavailable, match=r"open after 3 failures, for another 1\.0 s: down"):
        circuit.admit()


def test_a_success_in_between_starts_the_count_again(circuit: Circuit) -> None:
    fail(circuit, 2)
    circuit.succeeded()
    fail(circuit, 2)
    assert circuit.state == "closed"


def test_it_is_tested_after_a_while_and_closes_when_the_test_succeeds(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now_s = 1.0
    circuit.admit()
    assert circuit.state == "half-open"
    changed = circuit.succeeded()
    assert changed is not None
    assert (changed.consumer, changed.state) == ("o", "closed")
    assert circuit.state == "closed"


def test_each_failed_test_doubles_the_wait_up_to_the_cap(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    waits = []
    for _ in range(5):
        clock.now_s += 100
        fail(circuit, 1)
        assert circuit.state == "open"
        with pytest.raises(PublisherUnavailable) as refused:
            circuit.admit()
        waits.append(str(refused.value).partition("another ")[2].partition(" s")[0])
    assert waits == ["2.0", "4.0", "5.0", "5.0", "5.0"]


def test_after_it_has_closed_the_waits_begin_small_again(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now_s = 1.0
    fail(circuit, 1)
    clock.now_s = 3.0
    circuit.admit()
    circuit.succeeded()
    fail(circuit, 3)
    with pytest.raises(PublisherUnavailable, match=r"another 1\.0 s"):
        circuit.admit()


def test_a_receiver_that_asks_for_time_opens_it_at_once_but_not_for_longer_than_the_cap(
    circuit: Circuit, clock: Clock
) -> None:
    circuit.failed("busy", retry_after_s=3)
    assert circuit.state == "open"
    clock.now_s = 2.9
    with pytest.raises(PublisherUnavailable):
        circuit.admit()
    clock.now_s = 3.0
    circuit.admit()
    circuit.failed("busy", retry_after_s=1e9)
    clock.now_s = 8.0
    circuit.admit()
    assert circuit.state == "half-open"


def test_changes_are_logged(circuit: Circuit, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fencepost.consumers.outbox"):
        fail(circuit, 3)
        clock.now_s = 1.0
        circuit.admit()
        circuit.succeeded()
    assert [record.getMessage() for record in caplog.records] == [
        "outbox 'o': circuit open after 3 failures: down",
        "outbox 'o': circuit half-open",
        "outbox 'o': circuit closed",
    ]


@pytest.mark.parametrize("arguments", [{"failures": 0}, {"base_s": 0}, {"base_s": 2, "cap_s": 1}])
def test_a_breaker_that_makes_no_sense_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Breaker(**arguments)  # type: ignore[arg-type]
