"""`lake`: the log as Parquet files that prove themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..opening import open as open_address
from ..store import EventStore
from . import exits
from .options import POSITION, extras, file_path, json_option, open_store, store_argument
from .output import Output
from .sessions import master_option, spark_session


@click.group("lake")
def lake_command() -> None:
    """The log as Parquet files, with Delta and Iceberg tables over them."""


@lake_command.command("export")
@store_argument
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--upto", type=POSITION, metavar="POSITION", help="Only events up to POSITION.")
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=250_000,
    show_default=True,
    metavar="EVENTS",
    help="Events in a file.",
)
@click.option("--delta", is_flag=True, help="Keep a Delta table over the files.")
@click.option("--iceberg", is_flag=True, help="Keep an Iceberg table over the files.")
@master_option
@json_option
def export_command(
    store: str, folder: str, upto: int | None, chunk: int, delta: bool, iceberg: bool, master: str, as_json: bool | None
) -> None:
    """Bring the lake in FOLDER up to the head of STORE.

    An export that is interrupted goes on where it was when it is run again.
    """
    open_store(store).close()  # what is wrong with it is said before Spark starts
    output = Output(as_json)
    with extras():
        from ..spark import lake
    with spark_session(master, "lake export", output) as spark, _progress(output, "exporting") as on_progress:
        done = lake.export(
            spark, store, folder, upto=upto, chunk=chunk, delta=delta, iceberg=iceberg, on_progress=on_progress
        )
    output.result(
        {"folder": folder, "files": done.files, "events": done.events, "upto": done.upto},
        f"{folder} holds everything up to position {done.upto}: {done.events:,} events more, in {done.files} files.",
    )


@lake_command.command("verify")
@click.argument("folder", type=click.Path(file_okay=False))
@master_option
@json_option
def verify_command(folder: str, master: str, as_json: bool | None) -> int:
    """Prove the files in FOLDER by their checksums and their events.

    Exits with 4 if something is wrong, and says what and where.
    """
    output = Output(as_json)
    with extras():
        from ..spark import lake
    with spark_session(master, "lake verify", output) as spark:
        problems = lake.verify(spark, folder)
    if output.json:
        output.result({"problems": problems}, "")
    else:
        for problem in problems:
            output.console.print(exits.printable(problem), style="red")
        sentence = f"Not sound: {len(problems)} problems." if problems else "Sound: all files are as the manifest says."
        output.console.print(sentence, style="bold red" if problems else "bold green")
    return exits.UNSOUND if problems else exits.DONE


@lake_command.command("restore")
@click.argument("folder", type=click.Path(file_okay=False))
@store_argument
@json_option
def restore_command(folder: str, store: str, as_json: bool | None) -> None:
    """Put the events in FOLDER into STORE, with their positions, ids and times.

    STORE is empty, or holds the beginning of the same log: then this goes on where it ends. An
    SQLite file is made if need be.
    """
    output = Output(as_json)
    with extras():
        from ..spark import lake
        from ..spark.lake_files import read_manifest
    read_manifest(Path(folder))  # before a file is made for nothing
    with restorable(store) as opened, _progress(output, "restoring") as on_progress:
        head = lake.restore(folder, opened, on_progress=on_progress)
    # The address may hold a password, so it is not repeated.
    output.result({"head": head}, f"The store holds everything up to position {head}.")


def restorable(address: str) -> EventStore:
    """A restore has nothing to lose by a new file; other stores have to be there."""
    return open_store(address) if file_path(address) is None else open_address(address)


@contextmanager
def _progress(output: Output, doing: str) -> Iterator[Callable[[int, int], None]]:
    with output.progress.status(doing) as status:
        yield lambda done, all: status.update(f"{doing}: up to position {done:,} of {all:,}")
