"""Tables for people, JSON lines for programs.

Which of them is chosen by `--json` and `--table`, else by whether the output is a terminal. An
event table is printed page by page while it is read, so its columns are fixed by the first page;
what does not fit is cut, and `--json` has it whole. Whatever comes out of a store is made
printable first, since it may hold anything, such as sequences that steer a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..model import SequencedEvent
from .events import to_json
from .exits import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PAGE_EVENTS: Final = 1_024
TYPE_WIDTH: Final = 30  # a column is as wide as what it holds, up to this
TAGS_SHARE: Final = 0.6  # of what position, time and type leave; the data takes the rest
TAGS_LEAST: Final = 12  # where there is less room than this, a column is left out
DATA_LEAST: Final = 12
GAP: Final = 2


class Output:
    def __init__(self, as_json: bool | None) -> None:
        self.json = not sys.stdout.isatty() if as_json is None else as_json
        self._widths: dict[str, int] | None = None

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    @cached_property
    def progress(self) -> Console:
        """For what is shown while something takes its time: never mixed into the output."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.json or not sys.stderr.isatty())

    def result(self, value: Any, sentence: str) -> None:
        """The outcome of a command: as JSON, or as a sentence."""
        if self.json:
            self._write(msgspec.json.encode(value))
        else:
            self.console.print(printable(sentence))

    def events(self, events: Sequence[SequencedEvent]) -> None:
        """One page of events."""
        if self.json:
            for event in events:
                self._write(to_json(event))
        elif events:
            self.console.print(self._page(events))

    def flush(self) -> None:
        sys.stdout.flush()

    def _write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")

    def _page(self, events: Sequence[SequencedEvent]) -> Table:
        from rich.table import Table
        from rich.text import Text

        rows = [_cells(event) for event in events]
        first = self._widths is None
        if self._widths is None:
            self._widths = _fitted(rows, self.console.width)
        table = Table(box=None, show_header=first, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for heading, width in self._widths.items():
            justify: Any = "right" if heading == POSITION else "left"
            style = STYLES[heading]
            table.add_column(heading, width=width, style=style, no_wrap=True, overflow="ellipsis", justify=justify)
        for row in rows:
            table.add_row(*(Text(row[heading]) for heading in self._widths))
        return table


POSITION: Final = "position"
RECORDED: Final = "recorded (UTC)"
TYPE: Final = "type"
TAGS: Final = "tags"
DATA: Final = "data"
STYLES: Final = {POSITION: "cyan", RECORDED: "dim", TYPE: "bold", TAGS: "green", DATA: ""}
TIME_FORM: Final = "%Y-%m-%d %H:%M:%S"


def _cells(event: SequencedEvent) -> dict[str, str]:
    data = event.data[:4096]  # more than any terminal is wide
    try:
        text = data.decode() if len(data) == len(event.data) else data.decode(errors="ignore")
    except UnicodeDecodeError:
        text = f"{len(event.data)} bytes: {data[:64].hex(' ')}"
    return {
        POSITION: str(event.position),
        RECORDED: event.recorded_at.strftime(TIME_FORM),
        TYPE: printable(event.type),
        TAGS: printable(" ".join(sorted(event.tags))),
        DATA: printable(text),
    }


def _fitted(rows: Sequence[dict[str, str]], width: int) -> dict[str, int]:
    """The columns that a terminal of this width has room for, and how wide they are."""
    longest = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in STYLES}
    widths = {POSITION: longest[POSITION], RECORDED: longest[RECORDED], TYPE: min(longest[TYPE], TYPE_WIDTH)}
    left = width - sum(widths.values()) - GAP * len(widths)
    if left < TAGS_LEAST:
        left += widths.pop(RECORDED) + GAP
    if left < TAGS_LEAST + GAP + DATA_LEAST:
        return {**widths, TAGS: max(left, 1)}
    tags = min(longest[TAGS], max(int(left * TAGS_SHARE), left - GAP - longest[DATA]))
    return {**widths, TAGS: tags, DATA: left - GAP - tags}
