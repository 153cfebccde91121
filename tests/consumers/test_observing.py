"""What observers and logs are told about consumers, and the page about it, with the real SDK of OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.docs.pages import blocks, page

import fencepost
from fencepost import EventStore
from fencepost.consumers import (
    BatchHandled,
    Failures,
    HandlingFailed,
    HandlingGivenUp,
    LeadChanged,
    Reaction,
    Stalled,
    TimerFired,
    automation,
    consumer,
    start,
)
from fencepost.core.observers import Observation, observe
from fencepost.decisions import encode
from fencepost.decisions.inspection import DecisionEnded

from .orders import Order, OrderPlaced, cancel, place_order
from .places import Added, add, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


@pytest.fixture
def observed(store: EventStore) -> Iterator[list[Observation]]:
    """What the observers of this store are told."""
    found: list[Observation] = []
    with observe(found.append, of=store):
        yield found


def of(kind: type[Any], observed: list[Observation]) -> list[Any]:
    return [each for each in observed if isinstance(each, kind)]


def test_batches_and_the_lead_are_observed(store: EventStore, observed: list[Observation]) -> None:
    @consumer("effects", batch=5)
    def effects(event: Added) -> None: ...

    last = add(store, 10)
    with start(store, effects):
        eventually(lambda: store.checkpoint("effects") >= last)
        eventually(lambda: len(of(BatchHandled, observed)) == 2)
    assert [(each.events, each.consumer) for each in of(BatchHandled, observed)] == [(5, "effects"), (5, "effects")]
    assert of(LeadChanged, observed)[0].leads


def test_failures_and_giving_up_are_observed(store: EventStore, observed: list[Observation]) -> None:
    @consumer("effects", failures=Failures(attempts=2, base_s=0.01, then="set aside", key="key"))
    def effects(event: Added) -> None:
        if event.amount < 0:
            raise ValueError("negative")

    store.append([encode(Added("a", -1)), encode(Added("a", 1))])
    with start(store, effects):
        eventually(lambda: len(of(HandlingGivenUp, observed)) == 2)
    assert [each.attempt for each in of(HandlingFailed, observed)] == [1, 2]
    first, behind = of(HandlingGivenUp, observed)
    assert first == HandlingGivenUp("effects", 1, 2, "ValueError: negative", "set aside")
    assert (behind.position, behind.attempts) == (2, 0)


def test_a_consumer_that_stops_or_stalls_is_observed(store: EventStore, observed: list[Observation]) -> None:
    @consumer("stops", failures=Failures(attempts=1))
    def stops(event: Added) -> None:
        raise ValueError("never")

    @consumer("stalls", lease_s=0.5, failures=Failures(attempts=1_000, base_s=0.01, cap_s=0.01))
    def stalls(event: Added) -> None:
        raise ValueError("never")

    add(store)
    with start(store, stops, stalls):
        (stopped,) = eventually(lambda: of(HandlingGivenUp, observed))
        (stalled,) = eventually(lambda: of(Stalled, observed))
    assert (stopped.consumer, stopped.outcome) == ("stops", "stopped")
    assert (stalled.consumer, "ValueError: never" in stalled.reason) == ("stalls", True)


def test_timers_and_the_decisions_of_reactions_are_observed(store: EventStore, observed: list[Observation]) -> None:
    @automation("unpaid", after=timedelta(0))
    def unpaid(event: OrderPlaced, reaction: Reaction) -> None:
        cancel(reaction, Order(event.order_id))

    position = place_order(store, "a")
    with start(store, unpaid):
        (fired,) = eventually(lambda: of(TimerFired, observed))
    assert (fired.consumer, fired.position, fired.late_s >= 0) == ("unpaid", position, True)
    ended = [each for each in of(DecisionEnded, observed) if each.decision.endswith("cancel")]
    assert [each.error for each in ended] == [None]


def test_nothing_is_printed_unless_the_program_sets_up_logging() -> None:
    code = """
import logging, fencepost, fencepost.consumers
from fencepost.core.observers import Observation, notify, observe
def broken(observation):
    raise ValueError("broken observer")
store = fencepost.open("memory:")
observe(broken)
notify(store, Observation())
logging.getLogger("fencepost.consumers").error("a consumer has stopped")
logging.getLogger("fencepost.decisions").warning("a decision gave up")
if __import__("sys").argv[1:]:
    logging.basicConfig(level=logging.INFO)
    notify(store, Observation())
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    for arguments, expected in (([], False), (["loudly"], True)):
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        assert bool(ran.stderr) is expected
        assert ("broken observer" in ran.stderr) is expected


def test_the_page_gives_spans_and_metrics_to_opentelemetry() -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace._TRACER_PROVIDER, metrics._internal._METER_PROVIDER
    trace._TRACER_PROVIDER = provider
    metrics._internal._METER_PROVIDER = MeterProvider([reader])
    program: dict[str, Any] = {}
    try:
        exec("\n".join(blocks(page("docs/how-to/observe.md"), "python")), program)
        run_observed(program["store"])
    finally:
        if "observing" in program:
            program["observing"].stop()
        trace._TRACER_PROVIDER, metrics._internal._METER_PROVIDER = before
    names = {span.name for span in exporter.get_finished_spans()}
    assert "effects batch" in names
    assert any(name.endswith("cancel") for name in names)
    assert {"fencepost.consumer.events", "fencepost.decision.attempts", "fencepost.timer.lateness"} <= metric_names(
        reader
    )
    assert {"fencepost.consumer.failures", "fencepost.consumer.given_up"} <= metric_names(reader)
    for span in exporter.get_finished_spans():
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def metric_names(reader: InMemoryMetricReader) -> set[str]:
    data = reader.get_metrics_data()
    if data is None:
        return set()
    return {
        metric.name
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def run_observed(store: EventStore) -> None:
    """Something of everything that the page observes."""

    @consumer("effects", failures=Failures(attempts=1, then="set aside"))
    def effects(event: Added) -> None:
        if event.amount < 0:
            raise ValueError("negative")

    @automation("unpaid", after=timedelta(0))
    def unpaid(event: OrderPlaced, reaction: Reaction) -> None:
        cancel(reaction, Order(event.order_id))

    last = store.append([encode(Added("a", 1)), encode(Added("a", -1))]).last
    placed = place_order(store, "a")
    with start(store, effects, unpaid):
        eventually(lambda: store.checkpoint("effects") >= last)
        eventually(lambda: store.checkpoint("unpaid") >= placed)
    assert [event.type for event in store.read()].count("OrderCancelled") == 1
