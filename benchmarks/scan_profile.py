"""`python -m benchmarks.scan_profile`: where the time of a scan of SQLite goes; renews docs/benchmarks/spark.md.

Processor time for each event, because it depends less on what else the machine does. First the steps of a scan, each
by itself, in this process and without Spark. Then whole scans by Spark (`local[1]`), by the time of its Java and of its
Python processes, less the time of a job without events. What is compared takes turns, and the best round counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost.spark import events, session
from fencepost.spark.basics import full_schema, parse
from fencepost.spark.scanning import Selection, SqliteScan, to_spark
from fencepost.spark.scanning.sqlite import SOURCES

from .machine import facts
from .ready import Ready
from .spark import FOLDER, NARROW, PROFILE, consume, sqlite_log, write

EVENTS = 300_000
ROUNDS = 2
ROWS = 8_192
WARM_UP = 3  # rounds in which Java compiles
REPEATS = {"all": 3, "two": 6}  # of the log in one job, so that the job's fixed costs and their noise weigh less
TEXTS = ("type", "tags", "data", "id", "metadata")


class Spent(NamedTuple):
    """Microseconds for each event."""

    python: float
    java: float

    def less(self, other: Spent) -> Spent:
        return Spent(*(max(0.0, mine - its) for mine, its in zip(self, other, strict=True)))


def each(seconds: float) -> float:
    return seconds * 1e6 / EVENTS


def steps(path: str, columns: list[str]) -> dict[str, Callable[[], object]]:
    """The steps of a scan of these columns, each with its input at hand."""
    scan, everything = SqliteScan(path), Selection(0, EVENTS)
    schema = to_arrow_schema(full_schema(parse({"store": path})), timezone="UTC")
    schema = pa.schema([schema.field(name) for name in columns])
    stored = list(scan.batches(everything, columns))
    converted = [to_spark(batch, schema) for batch in stored]
    touched = ", ".join(f"max({f'octet_length({name})' if name in TEXTS else name})" for name in columns)
    plain = ", ".join(f"{SOURCES.get(name, name)} AS {name}" for name in columns)
    return {
        "walk of the table, inside SQLite": lambda: drain(fetched(path, f"SELECT {touched} FROM events")),
        "walk and record batches, by ADBC": lambda: drain(fetched(path, f"SELECT {plain} FROM events")),
        "the same as a scan does it: batches of bounded size": lambda: drain(scan.batches(everything, columns)),
        "conversion to Spark's types": lambda: [to_spark(batch, schema) for batch in stored],
        "Arrow's stream format, into memory": lambda: serialised(converted, schema),
    }


def fetched(path: str, sql: str) -> Iterator[pa.RecordBatch]:
    """By the same driver as a scan, since two SQLite libraries must not have one file open in one process."""
    from adbc_driver_sqlite import dbapi

    with dbapi.connect(f"file:{path}?mode=ro") as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS)})
        cursor.execute(sql)
        yield from cursor.fetch_record_batch()


def drain(batches: Iterator[pa.RecordBatch]) -> None:
    for _ in batches:
        pass


def serialised(batches: list[pa.RecordBatch], schema: pa.Schema) -> None:
    for batch in batches:
        with pa.ipc.new_stream(pa.BufferOutputStream(), schema) as stream:
            stream.write_batch(batch)


def in_one_process(path: str) -> list[dict[str, Any]]:
    chosen = {"all": ["position", "type", "tags", "data", "recorded_at", "id", "metadata"], "two": ["position", "type"]}
    work = {name: steps(path, columns) for name, columns in chosen.items()}
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        for columns, named in work.items():
            for step, run in named.items():
                began = process_time()
                run()
                spent = each(process_time() - began)
                best[step, columns] = min(spent, best.get((step, columns), spent))
    return [{"step": step, **{name: best[step, name] for name in work}} for step in work["all"]]


def in_spark(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    spark.dataSource.register(Ready)
    parquet = str(FOLDER / f"events-{EVENTS}.parquet")
    if not Path(parquet).exists():
        events(spark, path).write.option("compression", "zstd").parquet(parquet)
    made = []
    for name, columns in (("all", None), ("two", NARROW)):
        whole = events(spark, path, columns=columns, partitions=1)
        table = spark.read.parquet(parquet)
        ready = spark.read.format("ready").schema(whole.schema).options(path=path, events=EVENTS).load()
        found = compared(
            REPEATS[name],
            {
                "nothing": events(spark, path, columns=columns, partitions=1, up_to=0),
                "scan of the SQLite store": whole,
                "record batches that lie ready": ready,
                "the same in Parquet": table.select(*whole.columns),
            },
        )
        fixed = found.pop("nothing")
        made += [{"work": work, "columns": name, **spent.less(fixed)._asdict()} for work, spent in found.items()]
    return made


def compared(repeats: int, frames: dict[str, DataFrame]) -> dict[str, Spent]:
    """The cheapest round of each, after the rounds in which Java compiles."""
    best: dict[str, Spent] = {}
    for number in range(WARM_UP + ROUNDS):
        for work, frame in frames.items():
            spent = spent_by_spark(partial(consume, reduce(DataFrame.union, [frame] * repeats)), repeats)
            if number >= WARM_UP and (work not in best or sum(spent) < sum(best[work])):
                best[work] = spent
    return best


def spent_by_spark(run: Callable[[], object], repeats: int) -> Spent:
    before = processor_times()
    run()
    spent = {"python": 0.0, "java": 0.0}
    for (process, language), seconds in processor_times().items():
        spent[language] += seconds - before.get((process, language), 0.0)
    return Spent(each(spent["python"]) / repeats, each(spent["java"]) / repeats)


def processor_times() -> dict[tuple[int, str], float]:
    """Seconds that each of Spark's processes has used. They stay from job to job, so none of them ends unseen."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            language = "java" if process.name().startswith("java") else "python"
            found[process.pid, language] = sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return found


def main() -> None:
    path = sqlite_log(EVENTS)
    load = os.getloadavg()[0]
    found: dict[str, Any] = {"events": EVENTS, "steps": in_one_process(path)}
    spark = session("local[1]")
    found["spark"] = in_spark(spark, path)
    spark.stop()
    found["machine"] = facts("pyspark", "pyarrow", "adbc-driver-manager")
    found["load"] = [round(load, 1), round(os.getloadavg()[0], 1)]
    PROFILE.write_text(json.dumps(found, indent=1))
    write(Path("docs/benchmarks/spark.md"))
    for row in (*found["steps"], *found["spark"]):
        print(" | ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    main()
