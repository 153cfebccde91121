"""Print results as tables on a terminal, and as JSON lines elsewhere.

`--json` and `--table` override the default. Events are printed page by page while they are read, so the first page
fixes the width of the columns. Cells that do not fit are cut; `--json` prints them in full.

Stored text may hold anything. Tables and messages escape every invisible character; JSON lines escape control
characters, and on a terminal every other invisible character too. tests/cli/test_poison.py checks this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import SequencedEvent
from ..tools import escape_controls, event_to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PAGE_EVENTS: Final = 1_024
TYPE_WIDTH: Final = 30  # the widest that the column of types becomes
TAGS_SHARE: Final = 0.6  # of the width that position, time and type leave; the data gets the rest
TAGS_LEAST: Final = 12  # narrower than this, another column is left out
DATA_LEAST: Final = 12
GAP: Final = 2


class Output:
    """Where a command prints its result: `json` says in which form."""

    def __init__(self, as_json: bool | None) -> None:
        self._terminal = sys.stdout.isatty()
        self.json = not self._terminal if as_json is None else as_json
        self._widths: dict[str, int] | None = None

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    @cached_property
    def progress(self) -> Console:
        """The console for progress, on standard error."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.json or not sys.stderr.isatty())

    def result(self, value: Any, sentence: str) -> None:
        """Print the outcome of a command, as JSON or as a sentence."""
        if self.json:
            self._write(msgspec.json.encode(value))
        else:
            self.say(sentence)

    def say(self, sentence: str, style: str | None = None) -> None:
        """Print a sentence, for a reader."""
        self.console.print(printable(sentence), style=style)

    def events(self, events: Sequence[SequencedEvent]) -> None:
        """Print one page of events."""
        if self.json:
            for event in events:
                self._write(event_to_json(event))
        elif events:
            self.console.print(self._page(events))

    def flush(self) -> None:
        sys.stdout.flush()

    def _write(self, line: bytes) -> None:
        sys.stdout.buffer.write(escape_controls(line, formats=self._terminal) + b"\n")

    def _page(self, events: Sequence[SequencedEvent]) -> Table:
        from rich.text import Text

        rows = [_cells(event) for event in events]
        first = self._widths is None
        if self._widths is None:
            self._widths = _fitted(rows, self.console.width)
        page = table({}, show_header=first)
        for heading, width in self._widths.items():
            justify: Any = "right" if heading == POSITION else "left"
            style = STYLES[heading]
            page.add_column(heading, width=width, style=style, no_wrap=True, overflow="ellipsis", justify=justify)
        for row in rows:
            page.add_row(*(Text(row[heading]) for heading in self._widths))
        return page


def printable(text: str) -> str:
    """The text on one line, with every invisible character escaped.

    >>> printable("a\\tb\\x1b[2J")
    'a\\\\tb\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])


def table(headings: Mapping[str, bool], rows: Iterable[Sequence[str]] = (), **options: Any) -> Table:
    """A table without lines. `headings` says of each column whether its cells are numbers."""
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0), **options)
    for heading, numbers in headings.items():
        made.add_column(heading, justify="right" if numbers else "left")
    for cells in rows:
        add_row(made, cells)
    return made


def add_row(table: Table, cells: Iterable[str], style: str = "") -> None:
    from rich.text import Text

    table.add_row(*(Text(printable(cell)) for cell in cells), style=style)


def picked(value: object, *names: str) -> dict[str, Any]:
    """These attributes of a result, for JSON."""
    return {name: getattr(value, name) for name in names}


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
    """The columns that fit a terminal of this width, and their widths."""
    longest = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in STYLES}
    widths = {POSITION: longest[POSITION], RECORDED: longest[RECORDED], TYPE: min(longest[TYPE], TYPE_WIDTH)}
    left = width - sum(widths.values()) - GAP * len(widths)
    if left < TAGS_LEAST:
        left += widths.pop(RECORDED) + GAP
    if left < TAGS_LEAST + GAP + DATA_LEAST:
        return {**widths, TAGS: max(left, 1)}
    tags = min(longest[TAGS], max(int(left * TAGS_SHARE), left - GAP - longest[DATA]))
    return {**widths, TAGS: tags, DATA: left - GAP - tags}


@contextmanager
def progress_bar(output: Output) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each thing that is done, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=output.progress, disable=output.progress.quiet) as bar:

        def on_progress(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = bar.add_task(doing, total=total)
            bar.update(tasks[doing], completed=done, total=total)

        yield on_progress
