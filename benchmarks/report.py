"""docs/benchmarks.md, made of the figures that a run has left behind. No figure is typed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

INTRODUCTION = """\
# Benchmarks

What is compared here was measured in one run, on one machine, by one Python program that drives
both stores with the same events: 200 bytes of JSON and 3 tags each. Both are durable: an append
has been synced when it returns. Absolute figures tell about the machine; the ratio is what counts.
`make bench` measures it again and writes this page.
"""

NOTES = Path(__file__).with_name("notes.md")


def write(results: Path, docs: Path) -> None:
    embedded = json.loads((results / "embedded.json").read_text())
    measured = results / "growth.json"
    stretches = json.loads(measured.read_text())["stretches"] if measured.exists() else []
    plot(embedded["rows"], stretches, docs / "benchmarks.svg")
    parts = [
        INTRODUCTION,
        _machine(embedded["machine"]),
        _ratios(embedded["rows"]),
        "![ratios and growth](benchmarks.svg)",
        _bare(embedded["bare"]),
    ]
    parts.append(_sizes(embedded["growth"]))
    parts.append(_alone(embedded["alone"]))
    if stretches:
        parts.append(_stretches(stretches))
    if NOTES.exists():
        parts.append(NOTES.read_text().strip())
    others = sorted(path for path in (docs / "benchmarks").glob("*.md"))
    if others:
        parts.append("## More\n\n" + "\n".join(f"- [{_title(path)}](benchmarks/{path.name})" for path in others))
    (docs / "benchmarks.md").write_text("\n\n".join(part.strip() for part in parts) + "\n")


def _machine(machine: dict[str, str]) -> str:
    return "| machine | |\n|---|---|\n" + "\n".join(f"| {name} | {what} |" for name, what in machine.items())


def _ratios(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Beside UmaDB",
        "",
        "| work | unit | Fencepost | UmaDB | ratio |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row['work']} | {row['unit']} | {row['ours']:,.2f} | {row['theirs']:,.2f} | {row['ratio']:,.2f}x |"
        for row in rows
    ]
    lines += [
        "",
        "The ratio says how many times faster Fencepost is; for bytes, what part of the other's size it takes.",
    ]
    return "\n".join(lines)


def _sizes(growth: list[dict[str, Any]]) -> str:
    names = [name for name in growth[0] if name not in ("store", "events")]
    lines = ["## With the size of the store", "", "Milliseconds an operation, `bulk` in events a second.", ""]
    lines += ["| store | events | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for row in sorted(growth, key=lambda row: (row["store"], row["events"])):
        cells = " | ".join(f"{row[name]:,.0f}" if name == "bulk" else f"{row[name]:,.3f}" for name in names)
        lines.append(f"| {row['store']} | {row['events']:,} | {cells} |")
    return "\n".join(lines)


def _alone(figures: dict[str, float]) -> str:
    return (
        f"A process of its own opened the store of {figures['events']:,.0f} events in {figures['open_ms']:.1f} ms "
        f"and read all of it with {figures['after_mb']:.0f} MB of memory at most, of which "
        f"{figures['before_mb']:.0f} MB were taken before, by Python and what it had imported."
    )


def _stretches(stretches: list[dict[str, float]]) -> str:
    first = stretches[0]["rate"]
    lines = [
        "## Bulk append as the store grows",
        "",
        "One thread appends 1,000 events at a time; another appends single events meanwhile and waits.",
        "",
        "| events | events/s | of the first stretch | longest wait of the other thread |",
        "|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['events']:,.0f} | {row['rate']:,.0f} | {row['rate'] / first:.2f}x | {row['wait_ms']:.0f} ms |"
        for row in stretches
    ]
    return "\n".join(lines)


def _bare(figures: dict[str, float]) -> str:
    return (
        "## Beside bare SQLite\n\n"
        "What SQLite and the disk allow one caller: a bare `INSERT` of one row by apsw, in WAL mode with "
        f"`synchronous=FULL`, was made {figures['bare']:,.0f} times a second, and an append of one event "
        f"{figures['ours']:,.0f} times: {figures['ours'] / figures['bare']:.2f}x. Both took turns, and the medians of "
        f"{figures['rounds']:.0f} rounds count."
    )


def plot(rows: list[dict[str, Any]], stretches: list[dict[str, float]], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(3, 2), layout="constrained")
    shown = [row for row in rows if row["unit"] != "bytes"][::-1]
    left.barh([row["work"] for row in shown], [row["ratio"] for row in shown], color="#2b6cb0")
    left.axvline(1, color="#888888", linewidth=1)
    left.set_xscale("log")
    left.set_xlabel("times faster than UmaDB (logarithmic)")
    left.tick_params(labelsize=8)
    right.plot([row["events"] / 1e6 for row in stretches], [row["rate"] for row in stretches], color="#2b6cb0")
    right.set_ylim(0)
    right.set_xlabel("million events in the store")
    right.set_ylabel("events/s appended in bulk")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)


def _title(path: Path) -> str:
    return path.read_text().split("\n", 1)[0].lstrip("# ")
