"""The command `stats`: counts events by type, tag and time in one pass over the store."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import click

from .. import SequencedEvent
from ..engine import SQLITE, Address
from .options import json_option, open_store, store_argument
from .output import Output, add_row

if TYPE_CHECKING:
    from rich.table import Table

PERIODS: Final = 24  # at most this many rows in the table of events over time
STEPS: Final = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "30 days": timedelta(days=30),
    "365 days": timedelta(days=365),
}
COARSEST: Final = "365 days"
EPOCH: Final = datetime(1970, 1, 5, tzinfo=timezone.utc)  # a Monday, so that weeks begin on one
BAR_WIDTH: Final = 40
PROGRESS_EVENTS: Final = 10_000


@dataclass
class Kind:
    """Events of one type."""

    events: int = 0
    bytes: int = 0
    last: int = 0


@dataclass
class Stats:
    """The counts of one pass over a store. Memory grows with the number of different tags and seconds."""

    events: int = 0
    bytes: int = 0
    types: dict[str, Kind] = field(default_factory=dict)
    tags: Counter[str] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)

    def add(self, event: SequencedEvent) -> None:
        size = len(event.data)
        self.events += 1
        self.bytes += size
        kind = self.types.setdefault(event.type, Kind())
        kind.events += 1
        kind.bytes += size
        kind.last = event.position
        self.tags.update(event.tags)
        self.seconds[(event.recorded_at - EPOCH) // STEPS["second"]] += 1

    def growth(self) -> tuple[str, list[tuple[datetime, int]]]:
        """Events over time: the shortest step that gives at most `PERIODS` periods, and the events in each period."""
        if not self.seconds:
            return "second", []
        first, last = min(self.seconds), max(self.seconds)
        lengths = {name: int(step.total_seconds()) for name, step in STEPS.items()}
        few = (name for name, length in lengths.items() if last // length - first // length < PERIODS)
        name = next(few, COARSEST)
        length, step = lengths[name], STEPS[name]
        periods: Counter[int] = Counter()
        for second, events in self.seconds.items():
            periods[second // length] += events
        whole = range(first // length, last // length + 1)
        return name, [(EPOCH + period * step, periods[period]) for period in whole]


@click.command("stats")
@store_argument
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="TAGS",
    help="Print the TAGS most used tags.",
)
@json_option
def stats_command(store: str, top: int, as_json: bool | None) -> None:
    """Count events by type, tag and time. Reads every event."""
    output = Output(as_json)
    stats = Stats()
    with open_store(store) as opened:
        reading = opened.read()
        with output.progress.status("reading") as status:
            for event in reading:
                stats.add(event)
                if stats.events % PROGRESS_EVENTS == 0:
                    status.update(f"reading: position {event.position} of {reading.head}")
    file_bytes = _file_bytes(store)
    if output.json:
        output.result(_stats_to_builtins(stats, reading.head, file_bytes, top), "")
    else:
        _print_stats(output, stats, reading.head, file_bytes, top)


def _file_bytes(address: str) -> int | None:
    """The size of the file and its write-ahead log; None if the store is not a file."""
    parsed = Address.parse(address)
    if parsed.kind is not SQLITE:
        return None
    path = parsed.path
    return sum(os.path.getsize(name) for name in (path, f"{path}-wal") if os.path.exists(name))


def _stats_to_builtins(stats: Stats, head: int, file_bytes: int | None, top: int) -> dict[str, Any]:
    step, periods = stats.growth()
    return {
        "head": head,
        "events": stats.events,
        "data_bytes": stats.bytes,
        "file_bytes": file_bytes,
        "types": [
            {"type": type, "events": kind.events, "data_bytes": kind.bytes, "last": kind.last}
            for type, kind in _by_size(stats)
        ],
        "tags": {
            "different": len(stats.tags),
            "most_used": [{"tag": tag, "events": events} for tag, events in stats.tags.most_common(top)],
        },
        "growth": {"step": step, "periods": [{"from": start, "events": events} for start, events in periods]},
    }


def _by_size(stats: Stats) -> list[tuple[str, Kind]]:
    return sorted(stats.types.items(), key=lambda pair: (-pair[1].events, pair[0]))


def _print_stats(output: Output, stats: Stats, head: int, file_bytes: int | None, top: int) -> None:
    out = output.console
    summary = f"{stats.events:,} events, head {head}, {_size(stats.bytes)} of data"
    if file_bytes is not None:
        summary += f", {_size(file_bytes)} on disk"
    out.print(summary, style="bold")
    if not stats.events:
        return
    types = _table("type", ">events", ">share", ">data", ">last at")
    for type, kind in _by_size(stats):
        share = f"{kind.events / stats.events:.1%}"
        add_row(types, (type, f"{kind.events:,}", share, _size(kind.bytes), str(kind.last)))
    out.print("", types)
    if stats.tags:
        tags = _table("tag", ">events", ">share")
        for tag, events in stats.tags.most_common(top):
            add_row(tags, (tag, f"{events:,}", f"{events / stats.events:.1%}"))
        out.print("", tags)
        if len(stats.tags) > top:
            out.print(f" and {len(stats.tags) - top:,} more tags", style="dim")
    step, periods = stats.growth()
    growth = _table(f"per {step} (UTC)", ">events", "")
    most = max(events for _, events in periods)
    form = "%Y-%m-%d" if STEPS[step] >= STEPS["day"] else "%Y-%m-%d %H:%M:%S"
    for start, events in periods:
        bar = "█" * max(round(BAR_WIDTH * events / most), events > 0)
        add_row(growth, (start.strftime(form), f"{events:,}", bar))
    out.print("", growth, "")


def _table(*headings: str) -> Table:
    """An empty table. A heading that begins with > is that of a column of numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        numbers = heading.startswith(">")
        table.add_column(heading.lstrip(">"), justify="right" if numbers else "left", no_wrap=True, overflow="ellipsis")
    return table


def _size(count: int) -> str:
    """
    >>> _size(999), _size(2_500_000)
    ('999 B', '2.5 MB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
