"""`pipeline`: run the streaming queries of a module, and show their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .options import extras, json_option, local_path, master_option, open_store, spark_session
from .output import Output, add_row, printable, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.table import Table

    from ..spark.pipeline import QueryProgress, Run

SHOWN_ROWS = 20


@click.command("pipeline")
@click.argument("module")
@click.option("--store", required=True, metavar="STORE", help="The store to read from and to write back to.")
@click.option(
    "--folder",
    default="pipeline",
    show_default=True,
    type=local_path,
    metavar="FOLDER",
    help="Folder for results and checkpoints; a run with the same folder continues where the last one stopped.",
)
@click.option(
    "--every",
    metavar="INTERVAL",
    help='Run a batch at this interval, such as "10 seconds", until Ctrl-C. Default: run once.',
)
@master_option
@json_option
def pipeline_command(
    module: str, store: str, folder: str, every: str | None, master: str, as_json: bool | None
) -> None:
    """Run the streaming queries of MODULE on Spark.

    MODULE is a module name as in `import`, or a file. It defines pipeline(spark, store, folder, trigger), which
    yields streaming queries. A run that is killed can be repeated. With --every, Ctrl-C ends it.
    """
    open_store(store).close()  # report a wrong address before Spark starts
    output = Output(as_json)
    with extras():
        from ..spark import pipeline
    loaded = pipeline.load(module)
    with spark_session(master, f"pipeline {module}", output) as spark:
        with _watching(output) as watch:
            ran = pipeline.run(loaded, spark, store, folder, every=every, watch=watch)
        with output.progress.status("looking at the results"):
            tables = {name: _collected(frame) for name, frame in pipeline.results(loaded, spark, folder).items()}
    if output.json:
        output.result({"queries": [_summary(told) for told in ran.queries], "results": tables}, "")
        return
    output.console.print(_queries(ran.queries))
    for name, rows in tables.items():
        output.console.print(_shown(name, rows))


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.limit(SHOWN_ROWS).collect()]


def _summary(told: QueryProgress) -> dict[str, Any]:
    return {
        "query": told.name,
        "batches": told.batches,
        "rows": told.rows,
        "rows_per_s": round(told.rate, 1),
        "lag": told.lag,
        "error": told.error,
    }


@contextmanager
def _watching(output: Output) -> Iterator[Callable[[Run], None]]:
    """While the queries run, show a line for each and a bar for the current stage of Spark."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(finished_text="✔"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[told]}", markup=False),
    )
    with Progress(*columns, console=output.progress, transient=True) as shown:
        bars: dict[str, Any] = {}

        def watch(run: Run) -> None:
            done, every = run.stages()
            for told in run.queries:
                if told.name not in bars:
                    bars[told.name] = shown.add_task(printable(told.name), total=None, told="")
                busy = told.running and every > 0
                shown.update(
                    bars[told.name],
                    total=every if busy else (None if told.running else 1),
                    completed=done if busy else (0 if told.running else 1),
                    told=_line(told),
                )

        yield watch


def _line(told: QueryProgress) -> str:
    lag = "" if told.lag is None else f", {told.lag:,} behind"
    failed = "" if told.error is None else f", failed: {printable(told.error)}"
    return f"{told.rows:,} rows, {told.rate:,.0f} a second{lag}{failed}"


def _queries(queries: list[QueryProgress]) -> Table:
    made = table({"query": False, **dict.fromkeys(("batches", "rows", "rows a second", "events behind"), True)})
    for told in queries:
        lag = "" if told.lag is None else f"{told.lag:,}"
        add_row(made, (told.name, f"{told.batches:,}", f"{told.rows:,}", f"{told.rate:,.0f}", lag))
    return made


def _shown(name: str, rows: list[dict[str, Any]]) -> Table:
    columns = rows[0] if rows else {"nothing": ""}
    headings = {printable(name): isinstance(value, (int, float)) for name, value in columns.items()}
    cells = [[f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()] for row in rows]
    return table(headings, cells, title=f"\n{name}", title_justify="left", title_style="bold cyan")
