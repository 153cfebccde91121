"""`make bench`: Fencepost's embedded engine beside UmaDB, and how both grow.

The same Python program drives both with the same events, and every figure of one is taken right
after the other's, in several rounds of which the best counts for each: on a shared machine the
best round is the one that was disturbed least. Both are durable: an append has been synced when
it returns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from .machine import facts
from .peers import Caller, Fact, Fencepost, Umadb

WALLETS = 100_000  # 10 events each in a store of 1M
BRANCHES = 1_000  # 1,000 events each
TYPES = ("MoneyDeposited", "MoneyWithdrawn", "WalletOpened", "WalletRenamed")
RARE = "WalletFrozen"  # no event has this type

console = Console()
numbers = count(1)


def fact(number: int, wallet: int | None = None) -> Fact:
    """200 bytes of JSON, 3 tags."""
    wallet = number % WALLETS if wallet is None else wallet
    data = json.dumps({"wallet": wallet, "operation": number, "amount": number % 997, "note": ""})
    data = data[:-2] + "x" * (200 - len(data)) + data[-2:]
    return Fact(
        TYPES[number % len(TYPES)],
        (f"wallet:{wallet}", f"branch:{number % BRANCHES}", f"operation:{number}"),
        data.encode(),
    )


@dataclass
class Row:
    """One line of the table: what was measured, in what unit, for each peer; and the ratio wanted."""

    work: str
    unit: str
    ours: float
    theirs: float
    wanted: float
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        if self.unit == "bytes":
            return self.ours / self.theirs
        return self.theirs / self.ours if self.less_is_better else self.ours / self.theirs

    @property
    def reached(self) -> bool:
        return self.ratio <= self.wanted if self.unit == "bytes" else self.ratio >= self.wanted


@dataclass
class Pair:
    """Both stores, filled alike."""

    ours: Fencepost
    theirs: Umadb
    rows: list[Row] = field(default_factory=list)

    def compare(
        self, work: str, unit: str, measure: Callable[[Fencepost | Umadb], float], wanted: float, *, rounds: int = 3
    ) -> None:
        less_is_better = unit in ("ms", "bytes")
        best = min if less_is_better else max
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(rounds):
            taken["ours"].append(measure(self.ours))
            taken["theirs"].append(measure(self.theirs))
        row = Row(work, unit, best(taken["ours"]), best(taken["theirs"]), wanted, less_is_better)
        self.rows.append(row)
        console.print(f"  {work:<48} {row.ours:>12,.2f} {row.theirs:>12,.2f} {unit:<9} {row.ratio:>8,.2f}x")


Act: TypeAlias = Callable[[Caller, Sequence[Fact]], None]


def in_threads(peer: Fencepost | Umadb, callers: int, each: int, act: Act, size: int = 1) -> float:
    """How many acts a second so many callers do together. What they append is made beforehand."""
    made = [peer.caller() for _ in range(callers)]
    work_of = [[[fact(next(numbers)) for _ in range(size)] for _ in range(each)] for _ in range(callers)]
    begin = threading.Barrier(callers + 1)

    def work(caller: Caller, work: Sequence[Sequence[Fact]]) -> None:
        begin.wait()
        for some in work:
            act(caller, some)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(made, work_of, strict=True)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = perf_counter()
    for thread in threads:
        thread.join()
    return callers * each / (perf_counter() - began)


def conditional(caller: Caller, some: Sequence[Fact]) -> None:
    """A new operation on a wallet, unless that operation is stored already: the head is a moment old."""
    assert caller.append_if(some, (), (some[0].tags[2],), RECENT[type(caller)])


def decision(caller: Caller, some: Sequence[Fact]) -> None:
    """Read a wallet, decide, append unless somebody else has touched it meanwhile; until it is done."""
    wallet = some[0].tags[:1]
    while True:
        _, head = caller.read((), wallet)
        if caller.append_if(some, (), wallet, head):
            return


def blind(caller: Caller, some: Sequence[Fact]) -> None:
    caller.append(some)


RECENT: dict[type, int] = {}


def note_heads(pair: Pair) -> None:
    for peer in (pair.ours, pair.theirs):
        caller = peer.caller()
        RECENT[type(caller)] = caller.head()


def filled(caller: Caller, up_to: int) -> float:
    """Fill to so many events, a thousand an append; events a second."""
    begin = caller.head()
    began = perf_counter()
    for start in range(begin, up_to, 1_000):
        caller.append([fact(number) for number in range(start, min(start + 1_000, up_to))])
    return (up_to - begin) / (perf_counter() - began) if up_to > begin else 0.0


def milliseconds(act: Callable[[], object], times: int) -> float:
    began = perf_counter()
    for _ in range(times):
        act()
    return (perf_counter() - began) / times * 1e3


def small(folder: Path) -> list[Row]:
    """Appends and decisions on a store that starts empty; enough of them that starting the threads does not count."""
    pair = Pair(Fencepost(folder), Umadb(folder))
    for peer in (pair.ours, pair.theirs):
        filled(peer.caller(), 10_000)
    for callers, wanted in ((1, 4.0), (16, 4.0), (64, 2.5)):
        note_heads(pair)
        each = 4_800 // callers
        pair.compare(
            f"conditional append, {callers} callers",
            "per s",
            lambda peer, callers=callers, each=each: in_threads(peer, callers, each, conditional),  # type: ignore[misc]
            wanted,
        )
    for callers, wanted in ((1, 4.0), (16, 1.8), (64, 1.5)):
        each = 2_400 // callers
        pair.compare(
            f"decision: read a wallet, append, {callers} callers",
            "per s",
            lambda peer, callers=callers, each=each: in_threads(peer, callers, each, decision),  # type: ignore[misc]
            wanted,
        )
    for callers, wanted in ((1, 2.5), (16, 1.0), (64, 1.0)):
        each = 320 // callers
        pair.compare(
            f"append of 100 events, {callers} callers",
            "per s",
            lambda peer, callers=callers, each=each: in_threads(peer, callers, each, blind, 100),  # type: ignore[misc]
            wanted,
        )
    pair.ours.close()
    pair.theirs.close()
    return pair.rows


BARE_ROUNDS = 9


def beside_bare_sqlite(folder: Path) -> dict[str, float]:
    """Durable single appends of one caller, and bare inserts of the same rows by apsw, in turns; each a second."""
    import apsw

    ours = Fencepost(folder)
    caller = ours.caller()
    bare = apsw.Connection(str(folder / "bare.db"), vfs="unix")
    for setting in ("journal_mode=wal", "synchronous=full"):
        list(bare.execute(f"PRAGMA {setting}"))
    bare.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, type TEXT, tags TEXT, data BLOB, at INTEGER)")
    insert = partial(bare.execute, "INSERT INTO events (type, tags, data, at) VALUES (?, ?, ?, ?)")
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(BARE_ROUNDS):
        some = [fact(next(numbers)) for _ in range(1_000)]
        taken["ours"].append(1e3 / milliseconds(partial(_append_next, caller, iter(some)), len(some)))
        rows = iter([(each.type, json.dumps(each.tags), each.data, 0) for each in some])
        taken["bare"].append(1e3 / milliseconds(lambda rows=rows: insert(next(rows)), len(some)))  # type: ignore[misc]
    bare.close()
    ours.close()
    figures = {name: median(rates) for name, rates in taken.items()} | {"rounds": BARE_ROUNDS}
    console.print(f"  beside a bare INSERT: {figures} {figures['ours'] / figures['bare']:.2f}x (wanted: 0.9x)")
    return figures


def _append_next(caller: Caller, facts: Iterator[Fact]) -> None:
    caller.append([next(facts)])


def large(folder: Path, events: int) -> tuple[list[Row], list[dict[str, float]], dict[str, float]]:
    """Bulk, reads and conditions at 10k, 100k and more events."""
    pair = Pair(Fencepost(folder), Umadb(folder))
    growth = []
    rates: dict[str, float] = {}
    for size in [size for size in (10_000, 100_000) if size < events] + [events]:
        for peer in (pair.ours, pair.theirs):
            rates[peer.name] = filled(peer.caller(), size)
            growth.append({"store": peer.name, "events": size, **grown(peer.caller(), size), "bulk": rates[peer.name]})
            console.print(f"  {growth[-1]}")
    pair.rows.append(Row("bulk append, 1,000 events each", "events/s", rates["Fencepost"], rates["UmaDB"], 2.0))
    pair.compare(f"read all {events:,}", "events/s", lambda peer: events / _seconds(peer.caller().read_all), 1.3)
    wallet = iter(range(1, WALLETS))
    branch = iter(range(1, BRANCHES))
    pair.compare(
        f"read 10 of {events:,} by tag",
        "ms",
        lambda peer: _reads(peer.caller(), [f"wallet:{next(wallet)}" for _ in range(200)]),
        5.0,
    )
    pair.compare(
        f"read 1,000 of {events:,} by tag",
        "ms",
        lambda peer: _reads(peer.caller(), [f"branch:{next(branch)}" for _ in range(20)]),
        4.0,
    )
    pair.compare(
        f"append if no event has a rare type, {events:,}",
        "ms",
        lambda peer: _rare(peer.caller(), 5),
        500.0,
        rounds=2,
    )
    stored = {peer.name: peer.caller().head() for peer in (pair.ours, pair.theirs)}
    pair.rows.append(
        Row(
            "bytes per event",
            "bytes",
            pair.ours.size() / stored["Fencepost"],
            pair.theirs.size() / stored["UmaDB"],
            0.7,
        )
    )
    return pair.rows, growth, alone(pair.ours.path)


ALONE = """
import json, sys
from time import perf_counter
import fencepost, fencepost.engines.sqlite

def megabytes():
    # The most that this process has had; getrusage would count what it was forked from.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

before = megabytes()
began = perf_counter()
store = fencepost.open(sys.argv[1])
opened = perf_counter()
events = sum(1 for _ in store.read())
print(json.dumps({
    "events": events, "open_ms": (opened - began) * 1e3, "before_mb": before, "after_mb": megabytes(),
}))
"""


def alone(path: Path) -> dict[str, float]:
    """Opening a store and reading all of it, in a process of its own: the time of the one, the memory of the other."""
    tries = [
        json.loads(subprocess.run([sys.executable, "-c", ALONE, path], check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    return min(tries, key=lambda figures: figures["open_ms"])


def grown(caller: Caller, size: int) -> dict[str, float]:
    """What single operations cost at this size, in milliseconds."""
    head = caller.head()
    # Appends cost the same sync at every size; a condition that fails is checked and not synced.
    return {
        "check from the head": milliseconds(
            lambda: caller.append_if([fact(next(numbers))], (), ("wallet:x",), head), 50
        ),
        "check from 0, absent tag": milliseconds(
            lambda: caller.append_if([fact(next(numbers))], (), ("wallet:x",), 0), 50
        ),
        "refused, from 0": milliseconds(lambda: caller.append_if([fact(1)], (), ("operation:7",), 0), 50),
        "read a wallet": _reads(caller, [f"wallet:{number % min(size, WALLETS)}" for number in range(100, 200)]),
    }


def _reads(caller: Caller, tags: Sequence[str]) -> float:
    tag: Iterator[str] = iter(tags)
    return milliseconds(lambda: caller.read((), (next(tag),)), len(tags))


def _rare(caller: Caller, times: int) -> float:
    return milliseconds(lambda: caller.append_if([fact(next(numbers))], (RARE,), (), 0), times)


def _seconds(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began


def table(rows: Sequence[Row]) -> Table:
    made = Table(title="Fencepost and UmaDB in one run")
    for name in ("work", "unit", "Fencepost", "UmaDB", "ratio", "wanted", ""):
        made.add_column(name, justify="left" if name in ("work", "unit", "") else "right")
    for row in rows:
        sign = "<=" if row.unit == "bytes" else ">="
        made.add_row(
            row.work,
            row.unit,
            f"{row.ours:,.2f}",
            f"{row.theirs:,.2f}",
            f"{row.ratio:,.2f}x",
            f"{sign} {row.wanted:g}x",
            "[green]yes" if row.reached else "[red]no",
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="the size of the large store")
    parser.add_argument("--only", choices=("small", "large"), help="one half of it")
    parser.add_argument("--results", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    machine = facts("fencepost", "umadb", "apsw")
    for name, what in machine.items():
        console.print(f"{name:>12}: {what}")
    rows: list[Row] = []
    growth: list[dict[str, float]] = []
    single: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        for part in ("small", "large", "bare"):
            (Path(folder) / part).mkdir()
        bare = beside_bare_sqlite(Path(folder) / "bare")
        if arguments.only != "large":
            rows += small(Path(folder) / "small")
        if arguments.only != "small":
            more, growth, single = large(Path(folder) / "large", arguments.events)
            rows += more
            console.print(f"  alone: {single}")
    console.print(table(rows))
    if arguments.results:
        arguments.results.write_text(
            json.dumps(
                {
                    "machine": machine,
                    "command": " ".join(["python -m benchmarks.embedded", *sys.argv[1:]]),
                    "rows": [vars(row) | {"ratio": row.ratio, "reached": row.reached} for row in rows],
                    "growth": growth,
                    "alone": single,
                    "bare": bare,
                },
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
