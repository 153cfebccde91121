"""docs/benchmarks/postgres.md, made of the figures that the runs have left behind. No figure is typed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# Benchmarks on PostgreSQL

This page compares three stores: Fencepost, the `PostgresDCBRecorderTT` of `eventsourcing`, and a function that we
wrote after crablet's design (check, then insert; a GIN index on tags; only events older than every running transaction
count). All ran on one server from PyPI with `fsync` on, over a unix socket, in one run. Clients were threads of Python
processes on the same machine. Events have 200 bytes of data and 3 tags. The machine was shared, so the ratios say more
than the absolute figures.

    python -m benchmarks.postgres            # all; or one of: appends, sizes, torture
"""

# What a conditional append is to reach, beside eventsourcing and beside crablet's design, at so many callers.
AIMS = {(1, "eventsourcing"): 2, (16, "eventsourcing"): 5, (64, "eventsourcing"): 10,
        (1, "crablet's design"): 1, (64, "crablet's design"): 2}  # fmt: skip
LOAD = "load before the appends"  # of other programs
MAX_LOAD = 0.5
OTHERS = ("eventsourcing", "crablet's design")
MAX_CHECK, MAX_READ, MAX_BYTES = 1.5, 1.5, 0.8  # aims: a million events to 10,000; to the primary key; to the peer
LIMITS = """\
## What limits it

- **One caller** waits for a sync and for two processes to wake each other. The server makes only four system calls for
  an append: to receive, to write, to sync and to answer. The rest is the insertion into five indexes, and Python:
  [what was measured](../decisions/022-postgres-json-batches.md).
- **Many callers** of one process share Python's interpreter lock, and waking a thread costs more than waking a task.
  Clients and server compete for the same two cores, so these rates differ by a third between runs: in two of the last
  three runs, 64 callers reached ten times the rate of `eventsourcing`.
- **Several processes** take turns at the lock of the store, and each makes its own commits. After an append of one
  process, the server must check the conditions of the others. With one process and as many callers it need not.
- **Bytes**: most of them are the event itself. New positions of a tag are inserted in the middle of an index, so its
  pages are split in halves, one of which stays half full. `REINDEX INDEX CONCURRENTLY` packs them.
- **Two warm tags that never meet**: the server reads every event of one of them, and in a larger store each event is on
  a page of its own.
"""
TASKS = "fencepost, tasks"


def write(results: Path, path: Path) -> None:
    parts = {
        name: json.loads((results / f"postgres-{name}.json").read_text()) for name in ("appends", "sizes", "torture")
    }
    text = [
        INTRODUCTION,
        _machine(parts["appends"]["machine"]),
        _aims(parts["appends"]["figures"], parts["sizes"]["figures"]),
        _appends(parts["appends"]["figures"]),
        _torture(parts["torture"]["figures"]),
        _checks(parts["sizes"]["figures"]),
        _others(parts["sizes"]["figures"]),
        LIMITS,
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join(part.strip() for part in text) + "\n")


def _machine(machine: dict[str, str]) -> str:
    lines = ["| machine | |", "|---|---|", *(f"| {name} | {what} |" for name, what in machine.items())]
    if float(machine.get(LOAD, 0)) > MAX_LOAD:
        lines += [
            "",
            "**The machine was busy with other work when appends were measured**: the rates are too low, and the",
        ]
        lines += ["ratios for few callers, which mostly wait to be woken, are the least reliable."]
    return "\n".join(lines)


def _aims(appends: list[dict[str, Any]], sizes: dict[str, Any]) -> str:
    lines = ["## Aims", "", "| what | aim | measured | |", "|---|---:|---:|---|"]

    def add(what: str, aim: str, measured: float, reached: bool) -> None:
        lines.append(f"| {what} | {aim} | {measured:.2f}x | {'reached' if reached else '**missed**'} |")

    for row in appends:
        for other in OTHERS:
            aim = _aim(row, other)
            if aim is not None:
                best = max(_ratios(row, other))
                callers = f"{row['callers']} caller{'s' if row['callers'] > 1 else ''}"
                add(f"conditional appends, {callers}, beside {other}", f">= {aim}x", best, best >= aim)
    shape, growth = max(((shape, t["large"] / t["small"]) for shape, t in sizes["checks"].items()), key=lambda c: c[1])
    add(f"check of a condition, as the store grows; most: {shape}", f"<= {MAX_CHECK}x", growth, growth <= MAX_CHECK)
    read = sizes["read of 100 by tag, us"] / sizes["read of 100 by primary key, us"]
    add("100 events by tag, beside a read by primary key", f"<= {MAX_READ}x", read, read <= MAX_READ)
    size = sizes["bytes an event"]["fencepost"] / sizes["bytes an event"]["eventsourcing"]
    add("bytes an event, beside eventsourcing", f"<= {MAX_BYTES}x", size, size <= MAX_BYTES)
    return "\n".join(lines)


def _appends(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Appends",
        "",
        "Appends per second to stores of 100,000 events, by threads and, for Fencepost, also by as many tasks of one",
        "asyncio loop. The last columns say how many times faster Fencepost is, by threads / by tasks, with the aim.",
        "",
        "| append | processes | callers | Fencepost | tasks | eventsourcing | crablet's "
        "| of eventsourcing | of crablet's |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        kind = "conditional" if row["conditional"] else "blind"
        rates = [f"{row[name]:,.0f}" if name in row else "" for name in ("fencepost", TASKS, *OTHERS)]
        ratios = [_ratio(row, other) for other in OTHERS]
        lines.append("| " + " | ".join([kind, str(row["processes"]), str(row["callers"]), *rates, *ratios]) + " |")
    return "\n".join(lines)


def _ratio(row: dict[str, Any], other: str) -> str:
    ratios = _ratios(row, other)
    text = " / ".join(f"{ratio:.1f}x" for ratio in ratios)
    aim = _aim(row, other)
    if aim is None:
        return text
    return f"{text} (aim {aim}x{'' if max(ratios) >= aim else ', missed'})"


def _ratios(row: dict[str, Any], other: str) -> list[float]:
    return [row[name] / row[other] for name in ("fencepost", TASKS) if name in row]


def _aim(row: dict[str, Any], other: str) -> int | None:
    return AIMS.get((row["callers"], other)) if row["conditional"] and row["processes"] == 1 else None


def _torture(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## What is lost under load",
        "",
        "Twelve clients in three processes increment three counters. Each increment has the condition that no other",
        "client has incremented the counter since. The clients also append notes without a condition, and two pollers",
        "follow the log. A lost conflict is an append that was accepted although its condition failed. A skipped event",
        "is in the log, but no poller saw it.",
        "",
        "| store | appends | lost conflicts | skipped events |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        lost, skipped = row["lost conflicts"], row["skipped events"]
        lines.append(f"| {row['store']} | {row['appends']:,} | {lost:,} | {skipped:,} |")
    return "\n".join(lines)


def _checks(figures: dict[str, Any]) -> str:
    lines = [
        "## The check of a condition, as the store grows",
        "",
        "In the server, with generic plans. The two warm tags have 1,000 events each at both sizes.",
        "",
        "| condition | 10,000 events | 1,000,000 events | ratio |",
        "|---|---:|---:|---:|",
    ]
    for shape, taken in figures["checks"].items():
        ratio = taken["large"] / taken["small"]
        lines.append(f"| {shape} | {taken['small']:,.0f} us | {taken['large']:,.0f} us | {ratio:.2f}x |")
    return "\n".join(lines)


def _others(figures: dict[str, Any]) -> str:
    by_tag, by_key = figures["read of 100 by tag, us"], figures["read of 100 by primary key, us"]
    sizes, reads = figures["bytes an event"], figures["read of 100 by tag beside peers, us"]
    lines = [
        "## Reads and sizes",
        "",
        "| | Fencepost | beside | ratio |",
        "|---|---:|---|---:|",
        f"| 100 events by tag, of a million | {by_tag:,.0f} us | {by_key:,.0f} us for as many rows by primary key "
        f"| {by_tag / by_key:.2f}x |",
    ]
    for other in OTHERS:
        ratio = sizes["fencepost"] / sizes[other]
        lines.append(f"| bytes an event | {sizes['fencepost']:,.0f} | {sizes[other]:,.0f}, {other} | {ratio:.2f}x |")
    for other in OTHERS:
        ratio = reads["fencepost"] / reads[other]
        lines.append(
            f"| 100 events by tag, of 100,000 | {reads['fencepost']:,.0f} us | {reads[other]:,.0f} us, {other} "
            f"| {ratio:.2f}x |"
        )
    lines += [
        "",
        f"Loading a million events by COPY, indexes included: {figures['bulk load, events/s']:,.0f} events/s.",
    ]
    return "\n".join(lines)
