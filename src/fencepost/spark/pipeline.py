"""Running a pipeline: a module with a function that starts streaming queries, one after the other.

    def pipeline(spark, store, folder, trigger) -> Iterator[StreamingQuery]: ...
    def results(spark, folder) -> dict[str, DataFrame]: ...        # optional

The module is plain PySpark. In a run that ends, each query ends before the next one is started, so that it finds what
the previous one has written. In a run that continues, the next query is started when the previous one has completed a
batch; all queries run until one fails or the user presses Ctrl-C. tests/spark/test_pipeline.py checks this.
The progress that is shown is Spark's own.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..engine import pause
from ..errors import InvalidInput, StoreError
from .basics import address_of, local_path
from .spark_session import interruptible

LOOK_EVERY_S: Final = 0.2
PIPELINE: Final = "pipeline"
RESULTS: Final = "results"

Trigger = dict[str, Any]
Watch = Callable[["Run"], None]


@dataclass
class QueryProgress:
    """What a query has reported so far."""

    name: str
    query: StreamingQuery
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    lag: int | None = None  # events in the store that the query has not read, if it reads a store
    running: bool = True
    error: str | None = None
    _last: int = -1

    @property
    def rate(self) -> float:
        """Rows per second, while the query was processing batches."""
        return self.rows / self.seconds if self.seconds else 0.0

    def listen(self) -> None:
        for progress in self.query.recentProgress:
            batch, rows = progress.batchId, progress.numInputRows
            if batch > self._last and rows:
                self._last = batch
                self.batches += 1
                self.rows += rows
                self.seconds += dict(progress.durationMs).get("triggerExecution", 0) / 1_000
            self.lag = _lag(progress)
        self.running = self.query.isActive
        failure = None if self.running else self.query.exception()
        self.error = None if failure is None else first_lines(str(failure))


@dataclass
class Run:
    """A pipeline that is running: its queries, and the progress of the stages that Spark runs."""

    spark: SparkSession
    queries: list[QueryProgress] = field(default_factory=list)

    def listen(self) -> None:
        for told in self.queries:
            told.listen()

    def stages(self) -> tuple[int, int]:
        """Completed tasks and all tasks of the running stages; 0 and 0 for Spark Connect, which reports none."""
        done = every = 0
        try:
            tracker = self.spark.sparkContext.statusTracker()
        except PySparkException:
            return 0, 0
        for number in tracker.getActiveStageIds():
            info = tracker.getStageInfo(number)
            if info is not None:
                done, every = done + info.numCompletedTasks, every + info.numTasks
        return done, every


def load(name: str) -> ModuleType:
    """The pipeline's module, by its name or by the path of its file."""
    place = str(Path.cwd())
    if place not in sys.path:  # as `python -m` has it
        sys.path.insert(0, place)
    try:
        if name.endswith(".py"):
            module = _from_file(Path(name))
        else:
            module = import_module(name)
    except InvalidInput:
        raise
    except ModuleNotFoundError as error:
        raise InvalidInput("module", f"{name}: {error}; name a module as in `import`, or a file") from None
    except Exception as error:
        raise InvalidInput("module", f"{name} cannot be imported: {_described(error)}") from error
    if not callable(getattr(module, PIPELINE, None)):
        raise InvalidInput("module", f"{name} has no function {PIPELINE}(spark, store, folder, trigger)")
    return module


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput("module", f"{path}: there is no such file")
    sys.path.insert(0, str(path.parent.absolute()))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run(
    module: ModuleType,
    spark: SparkSession,
    store: str,
    folder: str,
    *,
    every: str | None = None,
    watch: Watch | None = None,
) -> Run:
    """Run the pipeline: once, up to the present head of the store; or with a batch `every` interval, until Ctrl-C.

    Results and checkpoints are in the folder; a run with the same folder continues where the last one stopped.
    """
    trigger: Trigger = {"availableNow": True} if every is None else {"processingTime": every}
    running = Run(spark)
    place = str(Path(local_path(folder, "folder")).absolute())
    Path(place).mkdir(parents=True, exist_ok=True)
    with interruptible():
        try:
            for query in _started(module, spark, address_of(store).text, place, trigger):
                running.queries.append(QueryProgress(query.name or f"query {len(running.queries) + 1}", query))
                _follow(running, watch, once=every is None)
            if every is not None:
                _stay(running, watch)
        finally:
            for told in running.queries:
                if told.query.isActive:
                    told.query.stop()
            running.listen()
    for told in running.queries:
        _raise_failure(told)
    return running


def results(module: ModuleType, spark: SparkSession, folder: str) -> Mapping[str, DataFrame]:
    """The DataFrames that the module shows as its results."""
    if not hasattr(module, RESULTS):
        return {}
    with _naming(module):
        found: Mapping[str, DataFrame] = getattr(module, RESULTS)(spark, str(Path(folder).absolute()))
    return found


def _started(
    module: ModuleType, spark: SparkSession, store: str, folder: str, trigger: Trigger
) -> Iterator[StreamingQuery]:
    with _naming(module):
        queries = iter(getattr(module, PIPELINE)(spark, store, folder, trigger))
    while True:
        with _naming(module):
            query = next(queries, None)
        if query is None:
            return
        yield query


def _follow(running: Run, watch: Watch | None, *, once: bool) -> None:
    """Wait until the newest query has ended; in a run that continues, until it has completed a batch or has none.

    It may never catch up, because others append meanwhile.
    """
    newest = running.queries[-1]
    while newest.query.isActive:
        _look(running, watch)
        status = newest.query.status
        waits = not status["isTriggerActive"] and not status["isDataAvailable"]
        idle = waits and status["message"].startswith("Waiting")
        if not once and (idle or newest.query.lastProgress is not None):
            break
    _raise_failure(newest)


def _stay(running: Run, watch: Watch | None) -> None:
    """Wait until a query has ended or the user presses Ctrl-C, which is a normal end once all queries run."""
    with suppress(KeyboardInterrupt):
        while all(told.query.isActive for told in running.queries):
            _look(running, watch)


def _look(running: Run, watch: Watch | None) -> None:
    running.listen()
    if watch is not None:
        watch(running)
    pause(LOOK_EVERY_S)


def _raise_failure(told: QueryProgress) -> None:
    error = None if told.query.isActive else told.query.exception()
    if error is not None:
        told.error = first_lines(str(error))
        raise StoreError(f"query {told.name!r} failed: {told.error}")


@contextmanager
def _naming(module: ModuleType) -> Iterator[None]:
    """Turn an error of the pipeline's own code into one that names the place in that code."""
    try:
        yield
    except (InvalidInput, StoreError):
        raise
    except Exception as error:
        raise InvalidInput("module", f"{module.__name__} failed: {_described(error)}") from error


def _described(error: BaseException) -> str:
    """The kind of the error, its first lines, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {first_lines(str(error))}{place}"


def first_lines(text: str) -> str:
    """The part of Spark's message before stack traces and plans."""
    lines = []
    for line in text.split("=== Streaming Query ===")[0].split("JVM stacktrace:")[0].splitlines():
        if line.strip().startswith(("at ", "Traceback")):
            break
        if line.strip():
            lines.append(line.strip())
    return " ".join(lines[:6])


def _lag(progress: Any) -> int | None:
    lags = []
    for source in progress.sources:
        end, latest = _position(source.endOffset), _position(source.latestOffset)
        if end is not None and latest is not None:
            lags.append(max(latest - end, 0))
    return max(lags) if lags else None


def _position(offset: Any) -> int | None:
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
        return int(found["position"])
    except (TypeError, KeyError, ValueError):
        return None  # an offset of another kind of source
