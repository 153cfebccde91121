"""`audit`: prove on Spark that every recorded condition held."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .. import Query
from ..errors import StoreCorrupt
from . import exits
from .options import extras, json_option, master_option, query_json, spark_session, store_argument, up_to_option
from .output import Output, picked, table

if TYPE_CHECKING:
    from ..spark.auditing import Audit, WhatIf


@click.command("audit")
@store_argument
@up_to_option
@click.option(
    "--what-if",
    "boundary",
    type=query_json,
    metavar="JSON",
    help="Also count the decisions that this query would have refused; wallet:* is each wallet of a decision.",
)
@click.option(
    "--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="ROWS", help="Rows per table."
)
@master_option
@json_option
def audit_command(
    store: str, up_to: int | None, boundary: Query | None, top: int, master: str, as_json: bool | None
) -> int:
    """Prove that every recorded condition held at its position.

    Also checks that ids are unique, positions grow and checksums agree, and reports the busiest boundaries, the
    closest calls, and boundaries wider than the events that ever matched them. STORE may be lake:FOLDER. Exits
    with 4 and names each violation if there is one, and with 5 if no condition was recorded: then nothing
    was proven.
    """
    output = Output(as_json)
    with extras():
        from ..spark.auditing import audit, what_if
        from ..spark.basics import address_of
        from ..spark.scanning import scan_of
        from ..spark.watching import progress
    with suppress(StoreCorrupt):  # which is a finding
        scan_of(address_of(store)).open().close()  # report a wrong address before Spark starts
    with spark_session(master, "audit", output) as spark:
        with progress(spark, "auditing", show=not output.progress.quiet) as say:
            found = audit(spark, store, up_to=up_to, on_progress=lambda doing: say(f"auditing: {doing}"))
            readable = all(violation.kind != "record" for violation in found.violations)
            supposed = what_if(spark, store, boundary, up_to=up_to) if boundary is not None and readable else None
            tables = {"boundaries": found.busiest(top), "closest": found.closest(top), "wider": found.widest(top)}
        _print(output, found, supposed, tables)
        found.release()
    return {"sound": exits.DONE, "unsound": exits.UNSOUND, "unproven": exits.UNPROVEN}[found.verdict]


def _print(output: Output, found: Audit, supposed: WhatIf | None, tables: dict[str, list[dict[str, Any]]]) -> None:
    if output.json:
        output.result(_as_json(found, supposed) | tables, "")
        return
    for violation in found.violations:
        output.say(str(violation), "red")
    share = f"{found.covered:,} of {found.events:,} events were recorded, in {found.appends:,} appends"
    if found.verdict == "sound" and not found.unchecked:
        output.say(f"Sound: all {found.proven:,} recorded conditions held; {share}.", "bold green")
    elif found.verdict == "sound":
        held = f"all {found.proven:,} recorded conditions held"
        output.say(f"Nothing wrong in what was checked: {held}; {share}.", "bold yellow")
        output.say(f"Not checked: {'; '.join(found.unchecked)}.", "yellow")
    elif found.verdict == "unproven":
        output.say(f"Nothing was proven: no condition was recorded; {share}.", "bold yellow")
        output.say("Open the store with record_conditions=True to record the conditions of its appends.")
    else:
        wrong = f"{found.refuted:,} of {found.proven:,} recorded conditions did not hold"
        named = f"{len(found.violations):,} violations are named"
        output.say(f"Not sound: {named}; {wrong}; {share}.", "bold red")
    output.say(f"Checksums: {found.checksums}.")
    if supposed is not None:
        output.say(
            f"Under that boundary {supposed.conflicts:,} of {supposed.decisions:,} decisions would have conflicted; "
            f"it applies to {supposed.guarded:,} of them."
        )
    for name, (title, columns) in TABLES.items():
        if rows := tables[name]:
            headings = {heading: isinstance(rows[0][column], int) for column, heading in columns.items()}
            cells = [[_cell(row[column]) for column in columns] for row in rows]
            output.console.print()
            output.console.print(table(headings, cells, title=title, title_justify="left"))


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
        "Wider than the events that ever matched them",
        {"item": "asked for", "conditions": "conditions", "found": "types found", "unused": "never found"},
    ),
}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)


def _as_json(found: Audit, supposed: WhatIf | None) -> dict[str, Any]:
    counts = ("head", "events", "appends", "covered", "proven", "refuted", "checksums")
    said = picked(found, "verdict", "sound", "unchecked", *counts)
    said["violations"] = [picked(each, "kind", "position", "what") for each in found.violations]
    if supposed is not None:
        said["what_if"] = picked(supposed, "decisions", "guarded", "conflicts")
    return said
