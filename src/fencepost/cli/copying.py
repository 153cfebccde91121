"""`copy`: bring one store up to the log of another, of any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ..address import FOUNDATIONDB, LAKE, Address
from ..copying import copy_log
from .options import json_option, open_source, open_target, upto_option
from .output import Output, picked


@click.command("copy")
@click.argument("from_", metavar="FROM")
@click.argument("to")
@upto_option
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Compare all that TO holds before, and read it again afterwards. On by default.",
)
@json_option
def copy_command(from_: str, to: str, upto: int | None, verify: bool, as_json: bool | None) -> None:
    """Copy the log of the store FROM into the store TO, with positions, ids, times and recorded conditions.

    TO must be empty, or hold the beginning of the same log; then the copy continues from its head. An SQLite file is
    created if it does not exist. Checkpoints of consumers are not copied.
    """
    kind = Address.parse(to).kind
    if kind is FOUNDATIONDB:
        raise click.UsageError(
            "FoundationDB assigns its own positions, so a store on it cannot take events with the positions that they "
            "have; copy into an SQLite file, PostgreSQL or a server"
        )
    if kind is LAKE:
        raise click.UsageError("a lake is written by `fencepost lake export`")
    output = Output(as_json)
    with open_source(from_) as source, open_target(to) as target, progress_bar(output) as on_progress:
        copied = copy_log(source, target, upto=upto, verify=verify, on_progress=on_progress)
    output.result(
        {
            **picked(copied, "head", "events", "appends"),
            "verified": copied.digest is not None,
            "digest": copied.digest,
        },
        f"Copied {copied.events:,} events, up to position {copied.head}"
        + (f"; both logs have the digest {copied.digest}." if copied.digest else "; not verified."),
    )


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
