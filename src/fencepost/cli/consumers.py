"""The group `consumers`: shows and steers the consumers of a store, and the events that they have set aside.

Every change is recorded in the store, with its author and time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from .. import EventStore
from ..engine import pause as wait
from . import exits
from .consume import load
from .options import POSITION, by_option, json_option, name_argument, open_store, store_argument
from .output import Output, add_row, progress_bar, table

if TYPE_CHECKING:
    from rich.table import Table

    from ..consumers import ConsumerStatus, DeadLetter, PartitionStatus

Steered: TypeAlias = tuple[dict[str, Any], str]
Steering: TypeAlias = Callable[..., Steered]

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
        output.say("No consumer has run on this store.")


def _table(found: list[ConsumerStatus]) -> Table:
    made = table({heading: heading not in LEFT for heading in HEADINGS})
    for each in found:
        state = f"paused by {each.paused_by}" if each.state == "paused" else each.state
        error = "" if each.error is None else f"{each.error} (at {each.error_position}, {each.error_age_s:.0f} s ago)"
        style = "" if each.healthy else "red"
        add_row(made, (each.name, state, *_figures(each), f"{each.dead_letters:,}", *_lease(each), error), style)
        for part in each.partitions:
            add_row(made, (f"  partition {part.number}", part.state, *_figures(part), "", *_lease(part), ""), style)
    return made


def _figures(found: ConsumerStatus | PartitionStatus) -> tuple[str, ...]:
    return f"{found.position:,}", f"{found.lag_events:,}", f"{found.lag_s:.1f}", f"{found.throughput_per_s:,}"


def _lease(found: ConsumerStatus | PartitionStatus) -> tuple[str, str]:
    return "-" if found.heartbeat_age_s is None else f"{found.heartbeat_age_s:.1f}", found.holder or "-"


def _steering(group: click.Group, command: str, *options: Callable[[Any], Any]) -> Callable[[Steering], Steering]:
    """Make a function the command of the group that steers the consumer NAME of STORE.

    The function gets the open store, the name, the options and `by`, and returns what is printed: the result as JSON,
    and as a sentence.
    """

    def made(function: Steering) -> Steering:
        @wraps(function)
        def run(*, store: str, name: str, as_json: bool | None, **given: Any) -> None:
            with open_store(store) as opened:
                value, sentence = function(opened, name, **given)
            Output(as_json).result({"consumer": name, **value}, sentence)

        steered: Any = run
        for parameter in (json_option, by_option, *reversed(options), name_argument, store_argument):
            steered = parameter(steered)
        group.command(command)(steered)
        return function

    return made


@_steering(
    consumers_command,
    "pause",
    click.option("--reason", default="", metavar="TEXT", help="Why; recorded with the pause."),
)
def pause_command(store: EventStore, name: str, reason: str, by: str | None) -> Steered:
    """Pause the consumer NAME after the batch that it is handling."""
    from ..consumers import pause

    changed = pause(store, name, by=by, reason=reason)
    return {"changed": changed}, f"{name} is paused." if changed else f"{name} was paused already."


@_steering(consumers_command, "resume")
def resume_command(store: EventStore, name: str, by: str | None) -> Steered:
    """Let NAME go on, after a pause or after it stopped because of a failure."""
    from ..consumers import resume

    changed = resume(store, name, by=by)
    return {"changed": changed}, f"{name} goes on." if changed else f"{name} was neither paused nor stopped."


@_steering(
    consumers_command,
    "reset",
    click.option("--position", type=POSITION, metavar="POSITION", help="Handle every event after POSITION again."),
    click.option(
        "--time", "moment", type=click.DateTime(), metavar="TIME", help="Handle events recorded since TIME (UTC) again."
    ),
)
def reset_command(
    store: EventStore, name: str, position: int | None, moment: datetime | None, by: str | None
) -> Steered:
    """Have NAME handle events again. What it has written before is not undone."""
    from ..consumers import reset

    if (position is None) == (moment is None):
        raise click.UsageError("give either --position or --time")
    since = None if moment is None else moment.replace(tzinfo=timezone.utc)
    position = reset(store, name, position=position or 0, to=since, by=by)
    return {"position": position}, f"{name} handles every event after position {position:,} again."


@_steering(
    consumers_command,
    "step",
    click.option("--partition", type=click.IntRange(0), metavar="NUMBER", help="Which partition, from 0 on."),
)
def step_command(store: EventStore, name: str, partition: int | None, by: str | None) -> Steered:
    """Have NAME, which must be paused, handle one event."""
    from ..consumers import step

    step(store, name, partition=partition, by=by)
    return {"changed": True}, f"{name} will handle one event."


@_steering(
    consumers_command,
    "repartition",
    click.option("--partitions", type=int, required=True, metavar="NUMBER", help="How many; 1 for none."),
    click.option("--key", metavar="TAG", help="The name of the tag whose value decides the partition."),
)
def repartition_command(store: EventStore, name: str, partitions: int, key: str | None, by: str | None) -> Steered:
    """Split the events of NAME into other partitions.

    Processes that run it with the old declaration end. Start those with the new one afterwards.
    """
    from ..consumers import repartition

    changed = repartition(store, name, partitions=partitions, key=key, by=by)
    text = "no partitions" if key is None else f"{partitions:,} partitions by the tag {key}"
    return {"changed": changed}, f"{name} has {text}." if changed else f"{name} had {text} already."


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


@consumers_command.group("dead-letters")
def dead_letters_command() -> None:
    """Show, replay and discard events that a consumer has set aside."""


@dead_letters_command.command("list")
@store_argument
@name_argument
@json_option
def list_command(store: str, name: str, as_json: bool | None) -> None:
    """List the dead letters of the consumer NAME."""
    from ..consumers import dead_letters

    output = Output(as_json)
    with open_store(store) as opened:
        found = dead_letters(opened, name)
    for letter in found:
        output.result(letter, _line(letter))
    if not found and not output.json:
        output.say(f"{name} has no dead letters.")


def _line(letter: DeadLetter) -> str:
    state = ", to be replayed" if letter.replay else ""
    return f"{letter.position}  {letter.type}  {letter.attempts} attempts  {letter.error}{state}"


@dead_letters_command.command("show")
@store_argument
@name_argument
@click.argument("position", type=POSITION)
@json_option
def show_command(store: str, name: str, position: int, as_json: bool | None) -> None:
    """Show the dead letter at POSITION: the error, then the event."""
    from ..consumers import dead_letter

    output = Output(as_json)
    with open_store(store) as opened:
        letter = dead_letter(opened, name, position)
        output.result(letter, _line(letter))
        output.events(list(opened.read(after=position - 1, up_to=position)))


positions_argument = click.argument("positions", type=POSITION, nargs=-1)


@_steering(dead_letters_command, "replay", positions_argument)
def replay_command(store: EventStore, name: str, positions: tuple[int, ...], by: str | None) -> Steered:
    """Have NAME handle the dead letters at POSITIONS again, or all of them."""
    from ..consumers import replay

    count = replay(store, name, positions, by=by)
    return {"requested": count}, f"{count} will be replayed."


@_steering(
    dead_letters_command,
    "discard",
    positions_argument,
    click.option("--all", "every", is_flag=True, help="Discard every dead letter of the consumer."),
)
def discard_command(store: EventStore, name: str, positions: tuple[int, ...], every: bool, by: str | None) -> Steered:
    """Drop the dead letters at POSITIONS without handling them."""
    from ..consumers import discard

    if bool(positions) == every:
        raise click.UsageError("give positions, or --all")
    count = discard(store, name, positions, by=by)
    return {"discarded": count}, f"{count} discarded."
