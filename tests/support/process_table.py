"""The processes of this machine, read from /proc.

A process may end at any moment while it is looked at: its folder is gone then, or reading a file in it fails with
"no such process". Both mean that it has ended, and only this module needs to know that there are two ways. A zombie,
which has ended and waits for its parent to collect its exit code, counts as ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    name: str
    """The name of the program, cut to 15 characters by the kernel."""
    parent: int
    group: int


def process(pid: int) -> Process | None:
    """The process with this id; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold any character, so the rest begins after the last one.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    state, parent, group = rest.split()[:3]
    return None if state == "Z" else Process(pid, name, int(parent), int(group))


def processes() -> Iterator[Process]:
    """Every process that runs, by ascending id."""
    for pid in sorted(int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()):
        if (found := process(pid)) is not None:
            yield found
