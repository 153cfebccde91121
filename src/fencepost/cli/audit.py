"""`audit`: that every recorded decision was safe, proven again on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..model import Query
from . import exits
from .options import POSITION, extras, json_option, query_json, store_argument
from .output import Output
from .sessions import master_option, spark_session

if TYPE_CHECKING:
    from rich.table import Table

    from ..spark.auditing import Audit, WhatIf


@click.command("audit")
@store_argument
@click.option("--upto", type=POSITION, metavar="POSITION", help="Only up to POSITION.")
@click.option(
    "--what-if",
    "boundary",
    type=query_json,
    metavar="JSON",
    help="How many decisions would have conflicted under this query; wallet:* is each wallet that one was about.",
)
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="ROWS", help="In each table.")
@master_option
@json_option
def audit_command(
    store: str, upto: int | None, boundary: Query | None, top: int, master: str, as_json: bool | None
) -> int:
    """Prove again that every recorded condition held at its position.

    Also that ids are unique, positions grow and checksums agree; then which boundaries are the
    busiest, how close calls were, and which are wider than the events that ever decided them. STORE
    may be lake:FOLDER. Exits with 4 if a violation is found, and names it.
    """
    output = Output(as_json)
    with extras():
        from ..spark.auditing import audit, what_if
        from ..spark.options import absolute
        from ..spark.scanning import scan_of
    scan_of(absolute(store)).open().close()  # what is wrong with it is said before Spark starts
    with spark_session(master, "audit", output) as spark:
        with output.progress.status("auditing") as status:
            found = audit(spark, store, upto=upto, on_progress=lambda doing: status.update(f"auditing: {doing}"))
            supposed = None if boundary is None else what_if(spark, store, boundary, upto=upto)
            tables = {"boundaries": found.busiest(top), "closest": found.closest(top), "wider": found.widest(top)}
        _print(output, found, supposed, tables)
        found.release()
    return exits.DONE if found.sound else exits.UNSOUND


def _print(output: Output, found: Audit, supposed: WhatIf | None, tables: dict[str, list[dict[str, Any]]]) -> None:
    if output.json:
        output.result(_as_json(found, supposed) | tables, "")
        return
    for violation in found.violations:
        output.console.print(exits.printable(str(violation)), style="red")
    share = f"{found.covered:,} of {found.events:,} events were recorded, in {found.appends:,} appends"
    if found.sound:
        output.console.print(f"Sound: all {found.proven:,} recorded conditions held; {share}.", style="bold green")
    else:
        wrong = f"{found.refuted:,} of {found.proven:,} recorded conditions did not hold"
        named = f"{len(found.violations):,} violations are named"
        output.console.print(f"Not sound: {named}; {wrong}; {share}.", style="bold red")
    output.console.print(f"Checksums: {found.checksums}.")
    if supposed is not None:
        output.console.print(
            f"Under that boundary {supposed.conflicts:,} of {supposed.decisions:,} decisions would have conflicted; "
            f"it says something about {supposed.guarded:,} of them."
        )
    for heading, (title, columns) in TABLES.items():
        if tables[heading]:
            output.console.print()
            output.console.print(_table(title, columns, tables[heading]))


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "boundaries": (
        "The busiest boundaries",
        {
            "shape": "boundary",
            "appends": "appends",
            "boundaries": "different",
            "median_window": "written past (median)",
            "smallest_margin": "smallest margin",
            "close_calls": "close calls",
        },
    ),
    "closest": (
        "The closest calls",
        {"first": "position", "after": "after", "margin": "margin", "window": "written past", "shape": "boundary"},
    ),
    "wider": (
        "Wider than the events that ever decided them",
        {"item": "asked for", "conditions": "conditions", "found": "types found", "unused": "never found"},
    ),
}


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for name, heading in columns.items():
        table.add_column(heading, justify="right" if isinstance(rows[0][name], int) else "left")
    for row in rows:
        table.add_row(*(Text(exits.printable(_cell(row[name]))) for name in columns))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)


def _as_json(found: Audit, supposed: WhatIf | None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "sound": found.sound,
        "head": found.head,
        "events": found.events,
        "appends": found.appends,
        "covered": found.covered,
        "proven": found.proven,
        "refuted": found.refuted,
        "checksums": found.checksums,
        "violations": [{"kind": each.kind, "position": each.position, "what": each.what} for each in found.violations],
    }
    if supposed is not None:
        said["what_if"] = {
            "decisions": supposed.decisions,
            "guarded": supposed.guarded,
            "conflicts": supposed.conflicts,
        }
    return said
