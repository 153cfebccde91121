"""`verify` and `backup`: the care of a store that is a file."""

from __future__ import annotations

import click

from . import exits
from .options import json_option, only_file, store_argument
from .output import Output


@click.command("verify")
@store_argument
@json_option
def verify_command(store: str, as_json: bool | None) -> int:
    """Prove the events by their checksums, and the index by them.

    Exits with 4 if something is wrong, and says what and where.
    """
    from ..engines.sqlite import verify

    path = only_file(store, "verify")
    output = Output(as_json)
    with output.progress.status("verifying") as status:
        report = verify(path, on_progress=lambda done, all: status.update(f"verifying: {done:,} of {all:,} events"))
    problems = [str(problem) for problem in report.problems]
    if output.json:
        output.result({"events": report.events, "postings": report.postings, "problems": problems}, "")
    else:
        for problem in problems:
            output.console.print(exits.printable(problem), style="red")
        counted = f"{report.events:,} events and {report.postings:,} postings"
        if problems:
            output.console.print(f"Not sound: {len(problems)} problems in {counted}.", style="bold red")
        else:
            output.console.print(f"Sound: {counted} agree.", style="bold green")
    return exits.UNSOUND if problems else exits.DONE


@click.command("backup")
@store_argument
@click.argument("to", type=click.Path())
@json_option
def backup_command(store: str, to: str, as_json: bool | None) -> None:
    """Copy a store into the new file TO, while others go on writing."""
    from ..engines.sqlite import backup

    path = only_file(store, "backup")
    output = Output(as_json)
    with output.progress.status("copying"):
        head = backup(path, to)
    output.result({"to": to, "head": head}, f"{to} holds everything up to position {head}.")
