"""`lake`: the log as a Delta table with checksums."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ..spark.location import object_url
from . import exits
from .options import (
    extras,
    json_option,
    lake_place,
    local_path,
    master_option,
    open_store,
    open_target,
    spark_session,
    store_argument,
    up_to_option,
)
from .output import Output, progress_bar


@click.group("lake")
def lake_command() -> None:
    """Export the log to a Delta table, verify its files, and restore a store from it."""


chunk_option = click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=250_000,
    show_default=True,
    metavar="EVENTS",
    help="Events per file.",
)
retain_option = click.option(
    "--retain-hours",
    type=click.IntRange(min=0),
    default=24,
    show_default=True,
    metavar="HOURS",
    help="How long files that merged ones replace are kept for readers.",
)


@lake_command.command("export")
@store_argument
@click.argument("folder", type=lake_place)
@up_to_option
@chunk_option
@retain_option
@master_option
@json_option
def export_command(
    store: str,
    folder: str,
    up_to: int | None,
    chunk: int,
    retain_hours: int,
    master: str,
    as_json: bool | None,
) -> None:
    """Export events to the lake in FOLDER, up to the head of STORE, and merge its small files.

    FOLDER may be in an object store: s3://BUCKET/PREFIX, gs:// or az://. Credentials come from the environment.
    An interrupted export continues where it stopped when it is run again.
    """
    open_store(store).close()  # report a wrong address before Spark starts
    output = Output(as_json)
    with extras():
        from ..spark import lake
    with spark_session(master, "lake export", output) as spark, progress_bar(output) as on_progress:
        done = lake.export(
            spark,
            store,
            folder,
            up_to=up_to,
            chunk=chunk,
            retain_hours=retain_hours,
            on_progress=partial(on_progress, "exporting"),
        )
    output.result(
        {"folder": folder, "files": done.files, "events": done.events, "up_to": done.up_to},
        f"{folder} is complete up to position {done.up_to}: {done.events:,} events were added, in {done.files} files.",
    )


@lake_command.command("follow")
@store_argument
@click.argument("folder", type=lake_place)
@click.option("--every", default="10 seconds", show_default=True, metavar="INTERVAL", help="How often to export.")
@click.option("--once", is_flag=True, help="Export once, up to the head, and end.")
@click.option("--checkpoint", type=local_path, metavar="PATH", help="Where progress is kept. Default: FOLDER/_follow.")
@chunk_option
@retain_option
@master_option
@json_option
def follow_command(
    store: str,
    folder: str,
    every: str,
    once: bool,
    checkpoint: str | None,
    chunk: int,
    retain_hours: int,
    master: str,
    as_json: bool | None,
) -> None:
    """Keep the lake in FOLDER current, until interrupted: export new events of STORE, and merge small files."""
    if checkpoint is None and object_url(folder, "FOLDER") is not None:
        raise click.UsageError("--checkpoint is needed for a lake in an object store: a folder for Spark's progress")
    open_store(store).close()
    output = Output(as_json)
    with extras():
        from ..spark import lake
        from ..spark.lake_engine.files import lake_at
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    with spark_session(master, "lake follow", output) as spark:
        place = checkpoint or str(Path(folder).absolute() / "_follow")
        query = lake.follow(spark, store, folder, checkpoint=place, chunk=chunk, retain_hours=retain_hours, **trigger)
        try:
            query.awaitTermination()
        finally:
            query.stop()
    up_to = lake_at(folder).up_to
    output.result({"folder": folder, "up_to": up_to}, f"{folder} is complete up to position {up_to}.")


@lake_command.command("compact")
@click.argument("folder", type=lake_place)
@chunk_option
@retain_option
@master_option
@json_option
def compact_command(folder: str, chunk: int, retain_hours: int, master: str, as_json: bool | None) -> None:
    """Merge the small files of the lake in FOLDER. Exports do it by themselves."""
    output = Output(as_json)
    with extras():
        from ..spark import lake
        from ..spark.lake_engine.files import lake_at
    lake_at(folder)  # report a wrong folder before Spark starts
    with spark_session(master, "lake compact", output) as spark:
        done = lake.compact(spark, folder, chunk=chunk, retain_hours=retain_hours)
    output.result(
        {"folder": folder, "files_before": done.before, "files": done.after},
        f"{folder} has {done.after} files of events; it had {done.before}.",
    )


@lake_command.command("verify")
@click.argument("folder", type=lake_place)
@master_option
@json_option
def verify_command(folder: str, master: str, as_json: bool | None) -> int:
    """Verify the checksums and positions of the files in FOLDER.

    Exits with 4 if a file is wrong, and names it.
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
            output.say(problem, "red")
        sentence = (
            f"Not sound: {len(problems)} problems." if problems else "Sound: all files agree with the table's log."
        )
        output.say(sentence, "bold red" if problems else "bold green")
    return exits.UNSOUND if problems else exits.DONE


@lake_command.command("restore")
@click.argument("folder", type=lake_place)
@store_argument
@json_option
def restore_command(folder: str, store: str, as_json: bool | None) -> None:
    """Restore the events in FOLDER into STORE, with their positions, ids and times.

    STORE must be empty, or hold the beginning of the same log; then the restore continues from its head. An
    SQLite file is created if it does not exist.
    """
    output = Output(as_json)
    with extras():
        from ..spark import lake
        from ..spark.lake_engine.files import lake_at
    lake_at(folder)  # before an SQLite file is created
    with open_target(store) as opened, progress_bar(output) as on_progress:
        head = lake.restore(folder, opened, on_progress=partial(on_progress, "restoring"))
    output.result({"head": head}, f"The store is restored up to position {head}.")
