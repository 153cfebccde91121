"""Counts, gauges and latencies in the text format of Prometheus.

Every metric is declared once, with its kind, its labels and its meaning. docs/reference/http.md lists them, which
tests/server/test_metrics.py checks, and deploy/grafana.json draws them, which tests/deploy checks. Several worker
processes exchange snapshots, so that any of them can answer for all (`Shared`).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

import msgspec

from ..engine import BatchCommitted

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_024.0, 4_096.0)
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True)
class Metric:
    """`combine` says what the metric of several worker processes is: the sum, the largest, or that of one of them."""

    kind: str
    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    combine: Literal["sum", "max", "one"] = "sum"
    borders: tuple[float, ...] = ()  # of the buckets of a histogram


_counter: Final = partial(Metric, "counter")
_gauge: Final = partial(Metric, "gauge")
_count_histogram: Final = partial(Metric, "histogram", borders=COUNTS)
_time_histogram: Final = partial(Metric, "histogram", borders=SECONDS)
_of_consumer: Final = partial(Metric, "gauge", labels=("consumer",), combine="one")

REQUESTS: Final = _counter("fencepost_requests_total", "Answered requests, by path and status.", ("path", "status"))
LATENCY: Final = _time_histogram(
    "fencepost_request_seconds", "The time from a request to its answer, by path.", ("path",)
)
APPENDED: Final = _counter("fencepost_events_appended_total", "Events stored by this server.")
APPENDS: Final = _counter("fencepost_appends_total", "Appends, by outcome.", ("outcome",))
CONFLICTS: Final = _counter("fencepost_conflicts_total", "Failed conditions, by what the query names.", ("boundary",))
BATCH: Final = _counter("fencepost_batch_appends_total", "Appends that arrived in requests of several.")
COMMIT_APPENDS: Final = _count_histogram("fencepost_commit_appends", "Appends in one group commit: the batch size.")
COMMIT_EVENTS: Final = _count_histogram("fencepost_commit_events", "Events in one group commit.")
COMMIT_SECONDS: Final = _time_histogram(
    "fencepost_commit_seconds", "The time that a group commit takes, with its sync."
)
SYNCS: Final = _counter("fencepost_syncs_total", "Group commits that stored something; each is one sync of the disk.")
READ: Final = _counter("fencepost_events_read_total", "Events sent to readers and subscribers.")
IN_FLIGHT: Final = _gauge("fencepost_requests_in_flight", "Requests being answered.")
SUBSCRIPTIONS: Final = _gauge("fencepost_subscriptions", "Requests that follow or wait for new events.")
REFUSED: Final = _counter("fencepost_refused_total", "Requests refused by a limit, by its name.", ("limit",))
REAPED: Final = _counter("fencepost_reaped_total", "Clients disconnected because they read or sent too slowly.")
CONNECTIONS: Final = _gauge("fencepost_connections", "Open connections.")
HEAD: Final = _gauge(
    "fencepost_head_position", "The position of the last event that the server knows of.", combine="max"
)
LAG: Final = _gauge(
    "fencepost_subscription_lag_events", "The largest distance of a subscription from the head.", combine="max"
)
LAG_SECONDS: Final = _gauge(
    "fencepost_subscription_lag_seconds",
    "How long ago the head passed the position of the subscription that is furthest behind.",
    combine="max",
)
STORE_BYTES: Final = _gauge("fencepost_store_bytes", "The size of the store on disk, for SQLite files.", combine="one")
BUILD: Final = _gauge("fencepost_build_info", "Always 1; the label names the version.", ("version",), "one")
UPTIME: Final = _gauge("fencepost_uptime_seconds", "Seconds since the server began.", combine="max")
WORKERS: Final = _gauge("fencepost_workers", "Processes that serve the store.")
STARTS: Final = _counter(
    "fencepost_worker_starts_total", "Starts of processes that serve the store, since the first one."
)
CONSUMER_STATE: Final = _of_consumer(
    "fencepost_consumer_state",
    "1 for the state of the consumer: running, paused, stopped, stalled or not running.",
    labels=("consumer", "state"),
)
CONSUMER_POSITION: Final = _of_consumer("fencepost_consumer_position", "The position that the consumer has reached.")
CONSUMER_LAG: Final = _of_consumer(
    "fencepost_consumer_lag_events", "Events that the consumer has not handled yet, counted up to 10000."
)
CONSUMER_LAG_SECONDS: Final = _of_consumer(
    "fencepost_consumer_lag_seconds", "The age of the oldest event that the consumer has not handled yet."
)
CONSUMER_RATE: Final = _of_consumer(
    "fencepost_consumer_throughput", "Events a second that the consumer handles, as its processes last reported it."
)
CONSUMER_HEARTBEAT: Final = _of_consumer(
    "fencepost_consumer_heartbeat_age_seconds",
    "Seconds since the last sign of life of the process that leads the consumer.",
)
CONSUMER_LETTERS: Final = _of_consumer("fencepost_consumer_dead_letters", "Events that the consumer has set aside.")
CONSUMER_ERROR: Final = _of_consumer(
    "fencepost_consumer_error_age_seconds", "Seconds since the last recorded error of the consumer."
)

METRICS: Final = tuple(each for each in globals().values() if isinstance(each, Metric))


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
        self._values: dict[Metric, dict[tuple[str, ...], float]] = defaultdict(partial(defaultdict, float))
        self._buckets: dict[Metric, dict[tuple[str, ...], list[int]]] = defaultdict(dict)
        self._sums: dict[Metric, dict[tuple[str, ...], float]] = defaultdict(partial(defaultdict, float))
        self._computed: dict[Metric, Callable[[], float]] = {}
        self._changing = Lock()

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        self._values[metric][labels] += amount

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

    def record(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value in a histogram."""
        counts = self._buckets[metric].setdefault(labels, [0] * (len(metric.borders) + 1))
        counts[bisect_left(metric.borders, value)] += 1
        self._sums[metric][labels] += value

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
                self._sums[metric][labels] += total

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


class Shared:
    """The snapshots of the workers, as the worker with this number sees them.

    Every worker has a file in a folder of the server, which it replaces once a second. Prometheus may ask any worker:
    that one adds the snapshots of the others to its own values. So the values of the others are at most a second old.

    A worker that takes the place of a killed one begins with what that one had published; what it counted after that is
    missing. A counter that Prometheus has seen must not fall, because Prometheus would take that for a restart and
    count everything again. So a worker publishes its values before it answers with them. tests/server/test_sharing.py
    and tests/server/slow/test_workers.py hold this.
    """

    def __init__(self, folder: Path, number: int, measured: Metrics) -> None:
        self._folder = folder
        self._file = folder / f"worker-{number}.json"
        self._metrics = measured
        before = _read(self._file)
        if before is not None:
            measured.combine(before.counted())
        self.publish()

    def publish(self) -> Snapshot:
        """Write the values of this worker for the others, and return them."""
        snapshot = self._metrics.snapshot()
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(snapshot))
        draft.replace(self._file)
        return snapshot

    def text(self) -> bytes:
        """The metrics of all workers."""
        return text_of(self.publish(), self._others())

    def _others(self) -> Iterator[Snapshot]:
        for file in sorted(self._folder.glob("worker-*.json")):
            if file != self._file and (found := _read(file)) is not None:
                yield found if _is_alive(found.process) else found.counted()


def _read(file: Path) -> Snapshot | None:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=Snapshot)
    return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
