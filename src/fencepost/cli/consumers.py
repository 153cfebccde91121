"""The group `consumers`: shows and steers the consumers of a store.

Every change is recorded in the store, with its author and time.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..interrupts import pause as wait
from ..store import EventStore
from . import exits
from .consume import load
from .copying import progress_bar
from .dead_letters import dead_letters_command
from .escaping import printable
from .options import POSITION, by_option, json_option, name_argument, open_store, store_argument
from .output import Output

if TYPE_CHECKING:
    from rich.table import Table

    from ..consumers import ConsumerStatus, PartitionStatus

WATCH_S = 1.0
HEADINGS = (
    *("consumer", "state", "position", "lag", "lag s", "events/s", "dead letters", "heartbeat s", "holder", "error"),
)
LEFT = frozenset({"consumer", "state", "holder", "error"})


@click.group("consumers")
def consumers_command() -> None:
    """Show and steer the consumers of a store."""


@consumers_command.command("status")
@store_argument
@click.argument("names", nargs=-1)
@click.option("--watch", is_flag=True, help="Print again every second until Ctrl-C.")
@json_option
def status_command(store: str, names: tuple[str, ...], watch: bool, as_json: bool | None) -> int:
    """Show position, lag, lease and errors of NAMES, or of every consumer.

    Exits with 6 if one of them is stalled or stopped.
    """
    from ..consumers import status

    output = Output(as_json)
    with open_store(store) as opened:
        found = status(opened, names)
        if watch and not output.json:
            _watch(output, opened, names, found)
        while watch and output.json:
            _print_status(output, found)
            output.flush()
            wait(WATCH_S)
            found = status(opened, names)
        _print_status(output, found)
    return exits.DONE if all(each.healthy for each in found) else exits.STALLED


def _watch(output: Output, store: EventStore, names: tuple[str, ...], found: list[ConsumerStatus]) -> None:
    from rich.live import Live

    from ..consumers import status

    with suppress(KeyboardInterrupt), Live(_table(found), console=output.console, auto_refresh=False) as live:
        while True:
            wait(WATCH_S)
            live.update(_table(status(store, names)), refresh=True)


def _print_status(output: Output, found: list[ConsumerStatus]) -> None:
    if output.json:
        for each in found:
            output.result(each, "")
    elif found:
        output.console.print(_table(found))
    else:
        output.console.print("No consumer has run on this store.")


def _table(found: list[ConsumerStatus]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in LEFT else "right")
    for each in found:
        state = f"paused by {each.paused_by}" if each.state == "paused" else each.state
        error = "" if each.error is None else f"{each.error} (at {each.error_position}, {each.error_age_s:.0f} s ago)"
        style = "" if each.healthy else "red"
        rows = [
            (each.name, state, *_figures(each), f"{each.dead_letters:,}", *_lease(each), error),
            *(
                (f"  partition {part.number}", part.state, *_figures(part), "", *_lease(part), "")
                for part in each.partitions
            ),
        ]
        for cells in rows:
            table.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return table


def _figures(found: ConsumerStatus | PartitionStatus) -> tuple[str, ...]:
    return f"{found.position:,}", f"{found.lag_events:,}", f"{found.lag_s:.1f}", f"{found.throughput_per_s:,}"


def _lease(found: ConsumerStatus | PartitionStatus) -> tuple[str, str]:
    return "-" if found.heartbeat_age_s is None else f"{found.heartbeat_age_s:.1f}", found.holder or "-"


@consumers_command.command("pause")
@store_argument
@name_argument
@click.option("--reason", default="", metavar="TEXT", help="Why; recorded with the pause.")
@by_option
@json_option
def pause_command(store: str, name: str, reason: str, by: str | None, as_json: bool | None) -> None:
    """Pause the consumer NAME after the batch that it is handling."""
    from ..consumers import pause

    with open_store(store) as opened:
        changed = pause(opened, name, by=by, reason=reason)
    _done(as_json, name, changed, f"{name} is paused." if changed else f"{name} was paused already.")


@consumers_command.command("resume")
@store_argument
@name_argument
@by_option
@json_option
def resume_command(store: str, name: str, by: str | None, as_json: bool | None) -> None:
    """Let NAME go on, after a pause or after it stopped because of a failure."""
    from ..consumers import resume

    with open_store(store) as opened:
        changed = resume(opened, name, by=by)
    _done(as_json, name, changed, f"{name} goes on." if changed else f"{name} was neither paused nor stopped.")


@consumers_command.command("reset")
@store_argument
@name_argument
@click.option("--position", type=POSITION, metavar="POSITION", help="Handle every event after POSITION again.")
@click.option(
    "--time", "moment", type=click.DateTime(), metavar="TIME", help="Handle events recorded since TIME (UTC) again."
)
@by_option
@json_option
def reset_command(
    store: str, name: str, position: int | None, moment: datetime | None, by: str | None, as_json: bool | None
) -> None:
    """Have NAME handle events again. What it has written before is not undone."""
    from ..consumers import reset

    if (position is None) == (moment is None):
        raise click.UsageError("give either --position or --time")
    with open_store(store) as opened:
        if moment is not None:
            position = reset(opened, name, to=moment.replace(tzinfo=timezone.utc), by=by)
        else:
            assert position is not None
            reset(opened, name, position=position, by=by)
    Output(as_json).result(
        {"consumer": name, "position": position}, f"{name} handles every event after position {position:,} again."
    )


@consumers_command.command("step")
@store_argument
@name_argument
@click.option("--partition", type=click.IntRange(0), metavar="NUMBER", help="Which partition, from 0 on.")
@by_option
@json_option
def step_command(store: str, name: str, partition: int | None, by: str | None, as_json: bool | None) -> None:
    """Have NAME, which must be paused, handle one event."""
    from ..consumers import step

    with open_store(store) as opened:
        step(opened, name, partition=partition, by=by)
    _done(as_json, name, True, f"{name} will handle one event.")


@consumers_command.command("repartition")
@store_argument
@name_argument
@click.option("--partitions", type=int, required=True, metavar="NUMBER", help="How many; 1 for none.")
@click.option("--key", metavar="TAG", help="The name of the tag whose value decides the partition.")
@by_option
@json_option
def repartition_command(
    store: str, name: str, partitions: int, key: str | None, by: str | None, as_json: bool | None
) -> None:
    """Split the events of NAME into other partitions.

    Processes that run it with the old declaration end. Start those with the new one afterwards.
    """
    from ..consumers import repartition

    with open_store(store) as opened:
        changed = repartition(opened, name, partitions=partitions, key=key, by=by)
    text = "no partitions" if key is None else f"{partitions:,} partitions by the tag {key}"
    _done(as_json, name, changed, f"{name} has {text}." if changed else f"{name} had {text} already.")


@consumers_command.command("verify")
@store_argument
@click.argument("models", nargs=-1, required=True)
@json_option
def verify_command(store: str, models: tuple[str, ...], as_json: bool | None) -> int:
    """Compare read models with a fresh fold of their events.

    MODELS are written module:name, or module for all of a module. Exits with 4 and names the first row that differs.
    """
    from ..consumers import ReadModel, verify

    output = Output(as_json)
    code = exits.DONE
    with open_store(store) as opened:
        for model in [each for text in models for each in load(text)]:
            if not isinstance(model, ReadModel):
                continue
            with progress_bar(output) as on_progress:
                drift = verify(model, opened, on_progress=partial(on_progress, f"verifying {model.table}"))
            if drift is None:
                sentence = f"{model.table} agrees with its events."
            else:
                sentence = f"{model.table} differs in the row {drift.key}: {drift.stored}, expected {drift.expected}"
                code = exits.UNSOUND
            output.result({"table": model.table, "version": model.version, "drift": drift}, sentence)
    return code


def _done(as_json: bool | None, name: str, changed: bool, sentence: str) -> None:
    value: dict[str, Any] = {"consumer": name, "changed": changed}
    Output(as_json).result(value, sentence)


consumers_command.add_command(dead_letters_command)
