"""`python -m benchmarks.spark [PART ...]`: measure all parts or those named, then write docs/benchmarks/spark.md.

Both sides of a ratio are measured in one session, in turns, and the best of several rounds counts:
the first one pays for starting workers, and a shared machine is not as fast in every minute.
`FENCEPOST_BENCH_EVENTS` makes it smaller. The figures of parts that are not run are those of the last run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import UUID

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event, Query
from fencepost.decisions import Projection, Tag, event, on
from fencepost.spark import View, events, fold, lake, match, session

from .machine import facts
from .ready import Ready

EVENTS = int(os.environ.get("FENCEPOST_BENCH_EVENTS", "5000000"))
SMALL = min(EVENTS, 1_000_000)
SCAN = f"scan of {EVENTS:,} events in SQLite"
QUERIES = 10_000
ROUNDS = 3
HYBRID_ROUNDS = 9  # two columns take a third of a second, so that a disturbance weighs much
RESULTS = Path("benchmarks/results")
PROFILE = RESULTS / "spark-scan-profile.json"
FOLDER = Path(os.environ.get("FENCEPOST_BENCH_FOLDER", "/tmp/fencepost-bench-spark"))
CONFIG = {"spark.driver.memory": "2g"}
NARROW = "position long, type string"
MATCHED = "position long, type string, tags array<string>"

NOTE = b"the monthly instalment, with our thanks; please ask the branch if it is late"  # the rest of 200 bytes

Rows = list[dict[str, Any]]


@event
class WalletOpened:
    wallet: Tag
    amount: int
    reference: str
    note: str


@event
class MoneyAdded:
    wallet: Tag
    amount: int
    reference: str
    note: str


class Balance(Projection):
    wallet: Tag
    amount: int = 0
    count: int = 0

    @on
    def _(self, event: WalletOpened | MoneyAdded) -> None:
        self.amount += event.amount
        self.count += 1


def made_events(first: int, count: int) -> list[Event]:
    """200 bytes of JSON and 3 tags each, a wallet for every ten events."""
    return [
        Event(
            "MoneyAdded" if number % 3 else "WalletOpened",
            data=b'{"wallet":"w%07d","amount":%4d,"reference":"%s","note":"%s"}'
            % (number // 10, number % 1000, reference(number), NOTE),
            tags={f"wallet:w{number // 10}", f"day:{number % 365}", "region:eu"},
            id=UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128),
            metadata={"trace": f"t{number}"} if number % 10 == 0 else None,
        )
        for number in range(first, first + count)
    ]


def reference(number: int) -> bytes:
    """Another one for each event, so that nothing makes short work of a column of them."""
    return blake2b(number.to_bytes(8), digest_size=32).hexdigest().encode()


def sqlite_log(count: int) -> str:
    """A store of so many events, kept between runs."""
    path = FOLDER / f"events-{count}.db"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        draft = FOLDER / f"draft-{count}.db"
        for leftover in FOLDER.glob(f"draft-{count}.db*"):
            leftover.unlink()
        with fencepost.open(draft) as store:
            for first in range(0, count, 10_000):
                store.append(made_events(first, min(10_000, count - first)))
        draft.rename(path)
    return str(path)


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds."""
    taken = []
    for _ in range(rounds):
        began = perf_counter()
        work()
        taken.append(perf_counter() - began)
    return min(taken)


def best_of_each(*works: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Seconds, each work in turn with the others."""
    measured = [[best(work, rounds=1) for work in works] for _ in range(rounds)]
    return [min(taken) for taken in zip(*measured, strict=True)]


def scan(frame: Callable[[], DataFrame]) -> Callable[[], None]:
    return lambda: consume(frame())


def consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def row(work: str, unit: str, ours: float, theirs: float | None, aim: float | None, peer: str) -> dict[str, Any]:
    ratio = ours / theirs if theirs else ours
    return {"work": work, "unit": unit, "ours": ours, "theirs": theirs, "ratio": ratio, "aim": aim, "peer": peer}


def measure_scan(spark: SparkSession) -> Rows:
    path = sqlite_log(EVENTS)
    parquet = str(FOLDER / f"events-{EVENTS}.parquet")
    if not Path(parquet).exists():
        events(spark, path).write.option("compression", "zstd").parquet(parquet)
    table = spark.read.parquet(parquet)
    spark.dataSource.register(Ready)
    made = []
    for name, columns in (("all columns", None), ("2 columns", NARROW)):
        whole = events(spark, path, columns=columns)
        stored = table if columns is None else table.select("position", "type")
        waiting = spark.read.format("ready").schema(whole.schema).options(path=path, events=EVENTS).load()
        taken = best_of_each(*(partial(consume, frame) for frame in (whole, stored, waiting)))
        ours, theirs, ready = (EVENTS / each for each in taken)
        made.append(row(f"{SCAN}, {name}", "events/s", ours, theirs, 0.8, "the same in Parquet"))
        made.append(
            row(f"{SCAN}, {name}", "events/s", ours, ready, None, "record batches that lie ready in the worker")
        )
    return made


def measure_hybrid(spark: SparkSession) -> Rows:
    """The log as a lake with 1% of its events after it, beside the same events in Parquet and in the store."""
    path = sqlite_log(EVENTS)
    parquet, folder = str(FOLDER / f"events-{EVENTS}.parquet"), FOLDER / f"lake-{EVENTS}"
    if not Path(parquet).exists():
        events(spark, path).write.option("compression", "zstd").parquet(parquet)
    if not folder.exists():
        lake.export(spark, path, str(folder), up_to=EVENTS * 99 // 100)
    table = spark.read.parquet(parquet)
    name = f"{EVENTS:,} events, 99% in a lake, 1% in SQLite"
    made = []
    for shown, columns, aim in (("all columns", None, 1.0), ("2 columns", NARROW, 0.8)):
        stored = table if columns is None else table.select("position", "type")
        hybrid = events(spark, path, columns=columns, lake=str(folder))
        native = events(spark, f"lake:{folder}", columns=columns)
        works = [partial(consume, frame) for frame in (hybrid, stored, native)]
        ours, theirs, past = best_of_each(*works, rounds=HYBRID_ROUNDS)
        made.append(row(f"{name}, {shown}", "events/s", EVENTS / ours, EVENTS / theirs, aim, "the same in Parquet"))
        rate = EVENTS * 99 // 100 / past
        made.append(row(f"lake alone, {shown}", "events/s", rate, EVENTS / theirs, None, "the same in Parquet"))
    whole = events(spark, path, columns=NARROW, lake=str(folder))
    counted, in_parquet, scanned = best_of_each(whole.count, table.count, events(spark, path).count)
    for other, peer in ((in_parquet, "the same in Parquet"), (scanned, "the store without a lake")):
        made.append(
            row(f"count of {name}", "s", counted / other, None, None, peer) | {"ours": counted, "theirs": other}
        )
    return made


def measure_postgres(spark: SparkSession) -> Rows:
    from fencepost.engines.postgres import install, load

    count = SMALL
    with PostgresServer(tcp=True, shared_buffers="512MB", max_wal_size="4GB") as server:
        install(server.url())
        load(server.url(), (event for first in range(0, count, 10_000) for event in made_events(first, 10_000)))
        jdbc = spark.read.format("jdbc").options(
            url=f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
            driver="org.postgresql.Driver",
            user="postgres",
            password=server.password,
            dbtable="(SELECT position, type, tags, data, recorded_at, id::text, metadata::text FROM fencepost.event) e",
            partitionColumn="position",
            lowerBound=1,
            upperBound=count,
            numPartitions=2,
            fetchsize=10_000,
        )
        ours, theirs = best_of_each(scan(lambda: events(spark, server.url(), partitions=2)), scan(jdbc.load))
    return [
        row("scan of PostgreSQL, all columns", "events/s", count / ours, count / theirs, 1.3, "Spark's JDBC source")
    ]


def fold_in_process(path: str) -> dict[str, Balance]:
    """What a program without Spark would do, in one thread."""
    balances: dict[str, Balance] = {}
    with fencepost.open(path) as store:
        for stored in store.read():
            for tag in stored.tags:
                if tag.startswith("wallet:"):
                    name = tag[7:]
                    balance = balances.get(name)
                    if balance is None:
                        balance = balances[name] = Balance(name)
                    balance.apply(stored)
    return balances


def measure_fold(spark: SparkSession) -> Rows:
    path = sqlite_log(SMALL)

    def folded(on: SparkSession) -> Callable[[], None]:
        return scan(lambda: fold(on, path, Balance, by="wallet"))

    here, both = best_of_each(lambda: fold_in_process(path), folded(spark))
    check_fold(spark, path)
    kept = FOLDER / "view"
    shutil.rmtree(kept, ignore_errors=True)
    view = View(Balance, by="wallet", at=str(kept), store=path, spark=spark)
    view.refresh(up_to=SMALL * 97 // 100)
    refreshed = [best(partial(view.refresh, up_to=SMALL * percent // 100), rounds=1) for percent in (98, 99, 100)]
    spark.stop()
    taken: dict[str, list[float]] = {"local[1]": [], "local[2]": []}
    for master in [*taken] * 2:
        spark = session(master, config=CONFIG)
        taken[master].append(best(folded(spark)))
        spark.stop()
    single, double = (min(times) for times in taken.values())
    pinned = fold_on_one_core(path)
    name = f"fold of {SMALL:,} events into {SMALL // 10:,} wallets"
    return [
        row(name, "events/s", SMALL / both, SMALL / here, 0.8, "the same in the process, one thread"),
        row(
            f"{name}, local[2]",
            "events/s",
            SMALL / double,
            SMALL / single,
            1.6,
            "local[1]",
        ),
        row(f"{name}, 2 cores", "events/s", SMALL / double, SMALL / pinned, 1.6, "local[1], held to 1 core"),
        row("refresh of a view after 1% new events", "s", min(refreshed) / both, None, -0.2, "the whole fold")
        | {"ours": min(refreshed), "theirs": both},
    ]


ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from benchmarks.spark import CONFIG, Balance, best, fold, scan, session
spark = session("local[1]", config=CONFIG)
print(best(scan(lambda: fold(spark, sys.argv[1], Balance, by="wallet")), rounds=2))
"""


def fold_on_one_core(path: str) -> float:
    """Seconds, with Java and Python held to one core together."""
    done = subprocess.run([sys.executable, "-c", ONE_CORE, path], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def check_fold(spark: SparkSession, path: str) -> None:
    """Nothing is measured that is not right."""
    expected = fold_in_process(path)
    rows = fold(spark, path, Balance, by="wallet").collect()
    assert {row["wallet"]: row["amount"] for row in rows} == {name: each.amount for name, each in expected.items()}


def measure_match(spark: SparkSession) -> Rows:
    path = sqlite_log(SMALL)

    def log() -> DataFrame:
        return events(spark, path, columns=MATCHED)

    queries = {f"q{number}": Query.of(tags={f"wallet:w{number}", "region:eu"}) for number in range(QUERIES)}
    few = {name: queries[name] for name in list(queries)[:20]}
    scanned = best(scan(log))
    matched = best(lambda: match(log(), queries).write.format("noop").mode("overwrite").save())
    crossed = best(lambda: crossed_join(spark, log(), few), rounds=1) * QUERIES / len(few)
    name = f"{QUERIES:,} queries by {SMALL:,} events"
    return [
        row(name, "s", crossed / matched, None, 100, f"{crossed:,.0f} s for a cross join, extrapolated from {len(few)}")
        | {"ours": matched, "theirs": crossed},
        row(f"{name}, as scans", "s", matched / scanned, None, -4, "one scan of the same columns")
        | {"ours": matched, "theirs": scanned},
    ]


def crossed_join(spark: SparkSession, log: DataFrame, queries: dict[str, Query]) -> None:
    items = spark.createDataFrame(
        [(name, sorted(item.tags)) for name, query in queries.items() for item in query.items],
        "query_id string, wanted array<string>",
    )
    pairs = log.crossJoin(F.broadcast(items)).where(F.size(F.array_except("wanted", "tags")) == 0)
    pairs.write.format("noop").mode("overwrite").save()


def measure_lake(spark: SparkSession) -> Rows:
    path = sqlite_log(SMALL)
    folder = FOLDER / "lake"

    def export() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        lake.export(spark, path, str(folder))

    exported = best(export, rounds=2)
    made = [row("lake export", "events/s", SMALL / exported, None, 150_000, "-") | {"ratio": SMALL / exported}]
    if hasattr(fencepost.EventStore, "restore"):
        target = FOLDER / "restored.db"

        def restore() -> None:
            for leftover in FOLDER.glob("restored.db*"):
                leftover.unlink()
            with fencepost.open(target) as store:
                lake.restore(str(folder), store)

        restored = best(restore, rounds=2)
        made.append(row("lake restore", "events/s", SMALL / restored, None, 40_000, "-") | {"ratio": SMALL / restored})
    return made


def measure_memory(spark: SparkSession) -> Rows:
    """The most that any Python process of Spark held while the whole log went through it."""
    made: Rows = []
    for count in sorted({SMALL, EVENTS}):
        path = sqlite_log(count)
        with Watched() as watched:
            scan(lambda: events(spark, path))()  # noqa: B023
        folder = FOLDER / "lake"
        shutil.rmtree(folder, ignore_errors=True)
        with Watched() as exporting:
            lake.export(spark, path, str(folder))
        made.append({"events": count, "scan_mib": watched.most_mib, "export_mib": exporting.most_mib})
    return made


class Watched:
    """The resident memory of the largest Python process below this one, looked at many times a second."""

    def __enter__(self) -> Watched:
        self.most_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "python" in process.name():
                        self.most_mib = max(self.most_mib, process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue


PARTS: dict[str, Callable[[SparkSession], Rows]] = {
    "scan": measure_scan,
    "hybrid": measure_hybrid,
    "postgres": measure_postgres,
    "fold": measure_fold,
    "match": measure_match,
    "lake": measure_lake,
    "memory": measure_memory,
}


def jdbc_driver() -> list[str]:
    """Debian's `libpostgresql-jdbc-java`, or what FENCEPOST_BENCH_JDBC names; nothing but this comparison needs it."""
    named = os.environ.get("FENCEPOST_BENCH_JDBC")
    return [named] if named else [str(path) for path in Path("/usr/share/java").glob("postgresql*.jar")][:1]


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    chosen = sys.argv[1:] or list(PARTS)
    config = CONFIG | ({"spark.jars": ",".join(jdbc_driver())} if jdbc_driver() else {})
    for name in chosen:
        spark = session("local[2]", config=config)
        if name == "postgres" and not jdbc_driver():
            print("postgres: left out; Spark's JDBC source needs Debian's libpostgresql-jdbc-java", file=sys.stderr)
            continue
        before = os.getloadavg()[0]
        figures = PARTS[name](spark)
        machine = facts("pyspark", "pyarrow", "adbc-driver-manager", "apsw")
        load = [round(before, 1), round(os.getloadavg()[0], 1)]
        result = {"machine": machine, "events": EVENTS, "load": load, "figures": figures}
        (RESULTS / f"spark-{name}.json").write_text(json.dumps(result, indent=1))
        print(json.dumps(figures, indent=1))
        spark.stop()
    write(Path("docs/benchmarks/spark.md"))


def write(target: Path) -> None:
    """The page, made of the figures that runs have left behind. No figure is typed in."""
    results = {
        name: json.loads(path.read_text()) for name in PARTS if (path := RESULTS / f"spark-{name}.json").exists()
    }
    if not results:
        return
    machine = next(iter(results.values()))["machine"]
    lines = [INTRODUCTION.strip(), "", "| machine | |", "|---|---|"]
    lines += [f"| {name} | {what} |" for name, what in machine.items()]
    lines += ["", *HEADINGS]
    for name in ("scan", "postgres", "fold", "match", "lake"):
        for figure in results.get(name, {}).get("figures", []):
            lines.append(_line(figure))
    if "hybrid" in results:
        before, after = results["hybrid"].get("load", ("?", "?"))
        lines += ["", HYBRID.strip().format(before=before, after=after), "", *HEADINGS]
        lines += [_line(figure) for figure in results["hybrid"]["figures"]]
    lines += ["", NOTES.strip(), *_profile()]
    if "memory" in results:
        lines += ["", "## Memory", "", MEMORY.strip(), "", "| events | scan, MiB | export, MiB |", "|---:|---:|---:|"]
        lines += [
            f"| {figure['events']:,} | {figure['scan_mib']:,.0f} | {figure['export_mib']:,.0f} |"
            for figure in results["memory"]["figures"]
        ]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n")


def _profile() -> list[str]:
    """What `benchmarks.scan_profile` has found."""
    if not PROFILE.exists():
        return []
    found = json.loads(PROFILE.read_text())
    columns = {"all": "all columns", "two": "2 columns"}
    lines = ["", PROFILED.strip().format(events=found["events"], load=found["load"][0]), ""]
    lines += ["| machine | |", "|---|---|", *(f"| {name} | {what} |" for name, what in found["machine"].items()), ""]
    lines += ["| in one process, without Spark | all columns, us | 2 columns, us |", "|---|---:|---:|"]
    lines += [f"| {step['step']} | {step['all']:.2f} | {step['two']:.2f} |" for step in found["steps"]]
    lines += ["", "| by Spark, `local[1]` | columns | Python, us | Java, us | both, us | Parquet's, to both |"]
    lines += ["|---|---|---:|---:|---:|---:|"]
    both = {(each["work"], each["columns"]): each["python"] + each["java"] for each in found["spark"]}
    for each in found["spark"]:
        whole, parquet = both[each["work"], each["columns"]], both["the same in Parquet", each["columns"]]
        figures = f"{each['python']:.2f} | {each['java']:.2f} | {whole:.2f} | {parquet / whole:.2f}x"
        lines.append(f"| {each['work']} | {columns[each['columns']]} | {figures} |")
    return [*lines, "", LIMITS.strip()]


def _line(figure: dict[str, Any]) -> str:
    unit = "" if figure["theirs"] is None else "x"
    compared = "" if figure["theirs"] is None else f"{figure['theirs']:,.2f}"
    shown = "" if figure["theirs"] is None else f"{figure['ratio']:,.2f}x"
    return (
        f"| {figure['work']} | {figure['unit']} | {figure['ours']:,.2f} | {compared} | {shown} "
        f"| {_aim(figure['aim'], figure['ratio'], unit)} | {figure['peer']} |"
    )


def _aim(aim: float | None, ratio: float, unit: str) -> str:
    """A negative aim is one to stay below."""
    if aim is None:
        return ""
    reached = ratio <= -aim if aim < 0 else ratio >= aim
    return f"{'≤' if aim < 0 else '≥'} {abs(aim):,g}{unit}{'' if reached else ' (missed)'}"


HEADINGS = (
    "| work | unit | Fencepost | compared | ratio | aim | compared with |",
    "|---|---|---:|---:|---:|---:|---|",
)

HYBRID = """
## A lake and the newest events as one DataFrame

`events(spark, store, lake=...)`, in a run of its own. The load average was {before} before the run and {after} after
it, on 2 cores. Read the ratios, whose sides took turns, rather than the rates. With 2 columns Parquet takes so little
time that the scan of the newest events, which has fixed costs, weighs much: compare with the lake alone. The ratios
differ between runs ([086](../decisions/086-ascending-columns-as-differences.md) has the range).
"""

INTRODUCTION = """
# Benchmarks of the data pipeline on Spark

Both sides of a ratio were measured in one session (`local[2]`), the best of several rounds. Events have
200 bytes of JSON and 3 tags, an id each, and metadata every tenth. `make bench-spark` measures it again.
"""

NOTES = """
## How to read it

- **A scan** carries each event from SQLite through Python and a socket into Java, where Parquet is decoded in Java
  alone, whole columns at a time. The lines with batches that lie ready show what is left when there is nothing to
  read. [The profile below](#where-the-time-of-a-scan-goes) has the parts. For many scans of one log,
  [read its past from a lake](../how-to/spark.md#read-a-long-log-fast).
- **`local[1]`** uses more than one core already, since Java and Python work at the same time; held to one core, it
  shows what a second one brings.
- **A refresh** has the fixed costs of a Spark job, whatever there is to fold: finding the states that are touched, a
  shuffle, writing a layer. They weigh less the longer the whole fold takes.
"""

PROFILED = """
## Where the time of a scan goes

Processor time for each of {events:,} events, from `python -m benchmarks.scan_profile`, in a run of its own. The
machine had other work (load average {load} on 2 cores); processor time depends on that less than the time that passes.
"""

LIMITS = """
- **All columns: the loss is in reading SQLite, not in the socket.** Batches that lie ready cost Python, socket and
  Java together about as much as Parquet costs Java alone. What a scan adds is the walk through SQLite's rows, the ADBC
  driver, which asks SQLite for each value and copies it into a batch, and the conversion of tags, ids and metadata.
- **2 columns: SQLite again, and then the source.** Most of a scan's time is Python's: the walk and the driver. Without
  them, ready batches take more than Parquet, and the table at the top shows the limit better: by the time that
  passes, ready batches reach less than half of Parquet's rate. No source that is written in Python gets beyond that.
- Java's figures include its compiler and its garbage collection. Between runs of this program they differed by a factor
  of almost two, the steps in one process by up to a fifth. So read which step is large, not its last digit.
- On 2 cores with `local[2]`, Java and Python share the cores, so the sum of both decides. With idle cores the larger of
  the two does, since both work at the same time.
"""

MEMORY = """
The most that any Python process of Spark held while the whole log went through it: bounded by the batch
for a scan and by the row group for an export, not by the log. Java, driver and executor in one, had
`spark.driver.memory=2g` for all of it.
"""

if __name__ == "__main__":
    main()
