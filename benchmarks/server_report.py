"""docs/benchmarks/server.md, made of the figures of one run. No figure is typed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_LOAD = 0.5  # above this, something else is using the machine

INTRODUCTION = """\
# The server beside UmaDB

Made by `make bench-server`: `fencepost serve` on an SQLite file and the UmaDB server, on loopback, driven by the same
`umadb` client over gRPC, in one run on one machine. Events have 200 bytes of JSON and 3 tags. Both are durable: an
append has been synced when it is answered. The client shares the cores with the servers, for both alike. In each round
both are measured, one right after the other. A figure is the median of the rounds, and a ratio is the median of the
ratios of the rounds. Absolute figures tell about the machine; the ratio is what counts.
"""

# What limits a figure, found with py-spy in the server's process. Shown for figures that miss their aim.
LIMITS = {
    "conditional appends": (
        "A fifth to a quarter of the samples of the event loop's thread were in the system call that sends an answer, "
        "measured with an earlier HTTP/2 of our own. The rest is Python: decoding and checking the request, the group "
        "commit, and judging. The interpreter lock keeps all of it on one core; UmaDB uses both."
    ),
    "reads of 10 events": (
        "Two fifths of the samples were in the system calls that send the answer (since then they are one call), "
        "a fifth in the search and the fetching of rows, and the rest in decoding the query, encoding the events and "
        "the event loop. One core does all of it."
    ),
    "read of all": (
        "The rows are fetched, checked against their checksums and encoded by one thread of Python at a time, at about "
        "3 µs an event. UmaDB does this in Rust, while its client decodes on the other core."
    ),
    "wake-up": (
        "The reader asks for a new head with a request that the server answers when there is one, and reads the event "
        "with a second request. Each of the two has to wait for a turn of the processor."
    ),
    "growth of memory": (
        "Not profiled. The page caches of SQLite's connections, which have limits, fill while the file grows: in a "
        "longer run on a new store the memory rose at first and then stayed the same."
    ),
    "export": "Reading and checking an event takes about as long as making its line; one core does both.",
    "copy SQLite to PostgreSQL": (
        "PostgreSQL takes about 20 µs of processor time for a row and its indexes, and the copy about 14 µs to read, "
        "check and encode the event."
    ),
}


@dataclass(frozen=True)
class Beside:
    """A figure of both servers; more is better."""

    work: str
    unit: str
    ours: float
    theirs: float
    ratio: float  # the median of the rounds' ratios, which need not be the ratio of the medians
    wanted: float | None
    processor_us: tuple[float, float] = (0, 0)  # of the servers, for one unit of work

    @property
    def is_missed(self) -> bool:
        return self.wanted is not None and self.ratio < self.wanted

    def __str__(self) -> str:
        aim = "" if self.wanted is None else f"≥ {self.wanted:g}x{' (missed)' if self.is_missed else ''}"
        figures = f"{self.ours:,.0f} | {self.theirs:,.0f} | {self.ratio:.2f}x"
        processor = " | ".join(f"{each:,.1f}" for each in self.processor_us)
        return f"| {self.work} | {self.unit} | {figures} | {aim} | {processor} |"


@dataclass(frozen=True)
class Alone:
    """A figure of our own, with an aim if there is one."""

    work: str
    unit: str
    figure: float
    wanted: float | None = None
    less_is_better: bool = False

    @property
    def is_missed(self) -> bool:
        if self.wanted is None:
            return False
        return self.figure > self.wanted if self.less_is_better else self.figure < self.wanted

    def __str__(self) -> str:
        if self.wanted is None:
            return f"| {self.work} | {self.unit} | {self.figure:,.1f} | |"
        sign = "≤" if self.less_is_better else "≥"
        missed = " (missed)" if self.is_missed else ""
        return f"| {self.work} | {self.unit} | {self.figure:,.1f} | {sign} {self.wanted:,.0f}{missed} |"


def write_page(
    path: Path,
    machine: Mapping[str, str],
    load: float,
    sizes: Mapping[str, float],
    rows: Sequence[Beside],
    http_rows: Sequence[Beside],
    alone: Sequence[Alone],
) -> None:
    about = {**machine, **{name: f"{size:,g}" for name, size in sizes.items()}, "load before the run": f"{load:.1f}"}
    parts = [INTRODUCTION.strip(), "| machine | |\n|---|---|\n" + "\n".join(f"| {k} | {v} |" for k, v in about.items())]
    if load > MAX_LOAD:
        parts.append(
            "**The machine was busy with other work during this run**, so absolute figures, and those without a\n"
            "counterpart, are lower than on a quiet machine. Ratios suffer less, because both figures of a round were\n"
            "disturbed, but not alike: a server with several busy threads gets more of a busy machine than one with a\n"
            "single busy thread. Measure again on a machine that is quiet."
        )
    parts.append(
        "## Over gRPC, with the same client\n\nThe last two columns are the processor time of the server for one unit "
        "of work. It depends less on\nwhat else the machine does than the other figures do.\n\n"
        "| work | unit | Fencepost | UmaDB | ratio | aim | Fencepost, µs | UmaDB, µs |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|\n" + "\n".join(map(str, rows))
    )
    parts.append(
        "## Our own client over HTTP, beside our server over gRPC\n\n"
        "| work | unit | HTTP | gRPC | ratio | aim | HTTP, µs | gRPC, µs |\n|---|---|---:|---:|---:|---:|---:|---:|\n"
        + "\n".join(map(str, http_rows))
    )
    parts.append(
        "## Alone\n\nExport and copy are commands; their time includes the start of the process. A figure `in a second "
        "of processor time` leaves out\nthe time that the command waited for the disk, for PostgreSQL, and for a core."
        "\n\n"
        "| work | unit | figure | aim |\n|---|---|---:|---:|\n" + "\n".join(map(str, alone))
    )
    missed = [row.work for row in (*rows, *http_rows, *alone) if row.is_missed]
    if missed:
        parts.append("## What was missed, and what limits it\n\n" + "\n".join(_reasons(missed)))
    path.write_text("\n\n".join(parts) + "\n")


def _reasons(missed: Sequence[str]) -> Iterator[str]:
    """A line for each reason, with the works that it limits."""
    for beginning, reason in LIMITS.items():
        works = [work for work in missed if work.startswith(beginning)]
        if works:
            yield f"- {'; '.join(works)}. {reason}"
    for work in missed:
        if not any(work.startswith(beginning) for beginning in LIMITS):
            yield f"- {work}: not profiled."
