"""Counts, gauges and latencies in the text format of Prometheus.

Every metric is declared once, with its kind, its labels and its meaning. docs/reference/http.md lists them, which
tests/server/test_metrics.py checks, and deploy/grafana.json draws them, which tests/deploy checks. Several worker
processes exchange snapshots, so that any of them can answer for all (`sharing`).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal

import msgspec

from ..core.service import BatchCommitted

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_024.0, 4_096.0)
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True)
class Metric:
    """`combine` says what the metric of several worker processes is: the sum, the largest, or that of one of them."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    combine: Literal["sum", "max", "one"] = "sum"
    borders: tuple[float, ...] = ()  # of the buckets of a histogram


REQUESTS: Final = Metric(
    "fencepost_requests_total", "counter", "Answered requests, by path and status.", ("path", "status")
)
LATENCY: Final = Metric(
    "fencepost_request_seconds",
    "histogram",
    "The time from a request to its answer, by path.",
    ("path",),
    borders=SECONDS,
)
APPENDED: Final = Metric("fencepost_events_appended_total", "counter", "Events stored by this server.")
APPENDS: Final = Metric("fencepost_appends_total", "counter", "Appends, by outcome.", ("outcome",))
CONFLICTS: Final = Metric(
    "fencepost_conflicts_total", "counter", "Failed conditions, by what the query names.", ("boundary",)
)
BATCH: Final = Metric("fencepost_batch_appends_total", "counter", "Appends that arrived in requests of several.")
COMMIT_APPENDS: Final = Metric(
    "fencepost_commit_appends", "histogram", "Appends in one group commit: the batch size.", borders=COUNTS
)
COMMIT_EVENTS: Final = Metric("fencepost_commit_events", "histogram", "Events in one group commit.", borders=COUNTS)
COMMIT_SECONDS: Final = Metric(
    "fencepost_commit_seconds", "histogram", "The time that a group commit takes, with its sync.", borders=SECONDS
)
SYNCS: Final = Metric(
    "fencepost_syncs_total", "counter", "Group commits that stored something; each is one sync of the disk."
)
READ: Final = Metric("fencepost_events_read_total", "counter", "Events sent to readers and subscribers.")
IN_FLIGHT: Final = Metric("fencepost_requests_in_flight", "gauge", "Requests being answered.")
SUBSCRIPTIONS: Final = Metric("fencepost_subscriptions", "gauge", "Requests that follow or wait for new events.")
REFUSED: Final = Metric("fencepost_refused_total", "counter", "Requests refused by a limit, by its name.", ("limit",))
REAPED: Final = Metric(
    "fencepost_reaped_total", "counter", "Clients disconnected because they read or sent too slowly."
)
CONNECTIONS: Final = Metric("fencepost_connections", "gauge", "Open connections.")
HEAD: Final = Metric(
    "fencepost_head_position", "gauge", "The position of the last event that the server knows of.", combine="max"
)
LAG: Final = Metric(
    "fencepost_subscription_lag_events",
    "gauge",
    "The largest distance of a subscription from the head.",
    combine="max",
)
LAG_SECONDS: Final = Metric(
    "fencepost_subscription_lag_seconds",
    "gauge",
    "How long ago the head passed the position of the subscription that is furthest behind.",
    combine="max",
)
STORE_BYTES: Final = Metric(
    "fencepost_store_bytes", "gauge", "The size of the store on disk, for SQLite files.", combine="one"
)
BUILD: Final = Metric(
    "fencepost_build_info", "gauge", "Always 1; the label names the version.", ("version",), combine="one"
)
UPTIME: Final = Metric("fencepost_uptime_seconds", "gauge", "Seconds since the server began.", combine="max")
WORKERS: Final = Metric("fencepost_workers", "gauge", "Processes that serve the store.")
STARTS: Final = Metric(
    "fencepost_worker_starts_total", "counter", "Starts of processes that serve the store, since the first one."
)
CONSUMER_STATE: Final = Metric(
    "fencepost_consumer_state",
    "gauge",
    "1 for the state of the consumer: running, paused, stopped, stalled or not running.",
    ("consumer", "state"),
    combine="one",
)
CONSUMER_POSITION: Final = Metric(
    "fencepost_consumer_position", "gauge", "The position that the consumer has reached.", ("consumer",), combine="one"
)
CONSUMER_LAG: Final = Metric(
    "fencepost_consumer_lag_events",
    "gauge",
    "Events that the consumer has not handled yet, counted up to 10000.",
    ("consumer",),
    combine="one",
)
CONSUMER_LAG_SECONDS: Final = Metric(
    "fencepost_consumer_lag_seconds",
    "gauge",
    "The age of the oldest event that the consumer has not handled yet.",
    ("consumer",),
    combine="one",
)
CONSUMER_RATE: Final = Metric(
    "fencepost_consumer_throughput",
    "gauge",
    "Events a second that the consumer handles, as its processes last reported it.",
    ("consumer",),
    combine="one",
)
CONSUMER_HEARTBEAT: Final = Metric(
    "fencepost_consumer_heartbeat_age_seconds",
    "gauge",
    "Seconds since the last sign of life of the process that leads the consumer.",
    ("consumer",),
    combine="one",
)
CONSUMER_LETTERS: Final = Metric(
    "fencepost_consumer_dead_letters", "gauge", "Events that the consumer has set aside.", ("consumer",), combine="one"
)
CONSUMER_ERROR: Final = Metric(
    "fencepost_consumer_error_age_seconds",
    "gauge",
    "Seconds since the last recorded error of the consumer.",
    ("consumer",),
    combine="one",
)

METRICS: Final = (
    REQUESTS,
    LATENCY,
    APPENDED,
    APPENDS,
    CONFLICTS,
    BATCH,
    COMMIT_APPENDS,
    COMMIT_EVENTS,
    COMMIT_SECONDS,
    SYNCS,
    READ,
    IN_FLIGHT,
    SUBSCRIPTIONS,
    REFUSED,
    REAPED,
    CONNECTIONS,
    HEAD,
    LAG,
    LAG_SECONDS,
    STORE_BYTES,
    BUILD,
    UPTIME,
    WORKERS,
    STARTS,
    CONSUMER_STATE,
    CONSUMER_POSITION,
    CONSUMER_LAG,
    CONSUMER_LAG_SECONDS,
    CONSUMER_RATE,
    CONSUMER_HEARTBEAT,
    CONSUMER_LETTERS,
    CONSUMER_ERROR,
)


class Snapshot(msgspec.Struct):
    """The values of one process, for another one that adds them to its own."""

    process: int
    values: dict[str, list[tuple[tuple[str, ...], float]]]
    buckets: dict[str, list[tuple[tuple[str, ...], list[int], float]]]

    def counted(self) -> Snapshot:
        """What remains true after the process has ended: its counters and histograms, not its gauges."""
        counters = {metric.name for metric in METRICS if metric.kind == "counter"}
        kept = {name: values for name, values in self.values.items() if name in counters}
        return Snapshot(self.process, kept, self.buckets)


class Metrics:
    """The values of all metrics of one process. Counts of commits come from any thread, all others from the loop."""

    def __init__(self) -> None:
        self._values: dict[Metric, dict[tuple[str, ...], float]] = defaultdict(dict)
        self._buckets: dict[Metric, dict[tuple[str, ...], list[int]]] = defaultdict(dict)
        self._sums: dict[Metric, dict[tuple[str, ...], float]] = defaultdict(dict)
        self._computed: dict[Metric, Callable[[], float]] = {}
        self._changing = Lock()

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self._values[metric][labels] = value

    def clear(self, metric: Metric) -> None:
        """Forget every value, for labels that may not exist any more."""
        self._values.pop(metric, None)

    def compute(self, metric: Metric, value: Callable[[], float]) -> None:
        """The value is asked for when the metrics are read."""
        self._computed[metric] = value

    def value(self, metric: Metric, *labels: str) -> float:
        return self._values[metric].get(labels, 0)

    def observe(self, path: str, seconds: float) -> None:
        self.record(LATENCY, seconds, path)

    def record(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value in a histogram."""
        counts = self._buckets[metric].setdefault(labels, [0] * (len(metric.borders) + 1))
        counts[bisect_left(metric.borders, value)] += 1
        sums = self._sums[metric]
        sums[labels] = sums.get(labels, 0.0) + value

    def committed(self, observation: Any) -> None:
        """Count what the store says about its group commits. Called in the thread that committed."""
        if isinstance(observation, BatchCommitted):
            with self._changing:
                self.record(COMMIT_APPENDS, observation.appends)
                self.record(COMMIT_EVENTS, observation.events)
                self.record(COMMIT_SECONDS, observation.elapsed_s)
                if observation.stored:
                    self.add(SYNCS)

    def snapshot(self) -> Snapshot:
        with self._changing:
            values = {metric.name: list(self._all(metric).items()) for metric in METRICS if not metric.borders}
            buckets = {
                metric.name: [
                    (labels, list(counts), self._sums[metric][labels]) for labels, counts in histogram.items()
                ]
                for metric, histogram in self._buckets.items()
            }
        return Snapshot(os.getpid(), values, buckets)

    def combine(self, other: Snapshot) -> None:
        """Add the values of another process."""
        for metric in METRICS:
            for labels, value in other.values.get(metric.name, ()):
                if metric.combine == "sum":
                    self.add(metric, *labels, amount=value)
                elif metric.combine == "max":
                    self.set(metric, max(value, self.value(metric, *labels)), *labels)
            for labels, counts, total in other.buckets.get(metric.name, ()):
                own = self._buckets[metric].setdefault(labels, [0] * len(counts))
                own[:] = [one + another for one, another in zip(own, counts, strict=True)]
                sums = self._sums[metric]
                sums[labels] = sums.get(labels, 0.0) + total

    def text(self) -> bytes:
        """The metrics of this process."""
        return text_of(self.snapshot())

    def lines(self) -> Iterator[str]:
        for metric in METRICS:
            yield f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"
            if metric.borders:
                yield from self._histogram(metric)
                continue
            for labels, value in sorted(self._all(metric).items()):
                yield f"{metric.name}{_labels(metric.labels, labels)} {value:.15g}\n"

    def _all(self, metric: Metric) -> dict[tuple[str, ...], float]:
        values = dict(self._values.get(metric, {}))
        if metric in self._computed:
            values[()] = self._computed[metric]()
        if not values and not metric.labels:
            values[()] = 0
        return values

    def _histogram(self, metric: Metric) -> Iterator[str]:
        for labels, counts in sorted(self._buckets[metric].items()):
            total = 0
            for border, count in zip([*map(str, metric.borders), "+Inf"], counts, strict=True):
                total += count
                yield f"{metric.name}_bucket{_labels((*metric.labels, 'le'), (*labels, border))} {total}\n"
            yield f"{metric.name}_sum{_labels(metric.labels, labels)} {self._sums[metric][labels]:.9g}\n"
            yield f"{metric.name}_count{_labels(metric.labels, labels)} {total}\n"


def text_of(own: Snapshot, others: Iterable[Snapshot] = ()) -> bytes:
    """The metrics of one worker process and of the other ones together."""
    together = Metrics()
    for metric in METRICS:  # not added: of some metrics, only those of one process count
        for labels, value in own.values.get(metric.name, ()):
            together.set(metric, value, *labels)
    for each in (Snapshot(0, {}, own.buckets), *others):
        together.combine(each)
    return "".join(together.lines()).encode()


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True)) + "}"
