"""`check`: what a store would say to a condition, without appending anything."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..model import AppendCondition, Query, SequencedEvent
from ..store import EventStore
from . import exits
from .events import to_builtins
from .options import after_option, chosen_query, condition_json, json_option, open_store, query_options, store_argument
from .output import Output


@click.command("check")
@store_argument
@query_options
@after_option
@click.option(
    "--condition",
    "conditions",
    type=condition_json,
    metavar="JSON",
    multiple=True,
    help="The condition as JSON, as `append` takes it; may be repeated.",
)
@json_option
@click.pass_context
def check_command(
    context: click.Context,
    store: str,
    types: tuple[str, ...],
    tags: tuple[str, ...],
    query: Query | None,
    after: int,
    conditions: tuple[AppendCondition, ...],
    as_json: bool | None,
) -> int:
    """Say what a condition would do now, and which event stops it.

    The condition is that no event above --after matches --type, --tag or --query; or it is given
    whole by --condition. Exits with 1 if it would refuse an append.
    """
    described = bool(types or tags or query is not None)
    if conditions and (described or after):
        raise click.UsageError("--condition is the whole condition: put the query and after into it")
    if not conditions and not described:
        raise click.UsageError("say what must not have happened: --type, --tag, --query or --condition")
    asked = conditions or (AppendCondition(chosen_query(types, tags, query), after),)
    with open_store(store) as opened:
        conflicts = [_check(opened, condition, Output(as_json)) for condition in asked]
    return exits.REFUSED if any(conflicts) else exits.DONE


def _check(store: EventStore, condition: AppendCondition, output: Output) -> bool:
    """Whether something is in the way of the condition: the first event that matches it."""
    reading = store.read(condition.fail_if_events_match, after=condition.after, limit=1)
    conflicts: Sequence[SequencedEvent] = list(reading)
    if output.json:
        found = {"conflict": to_builtins(conflicts[0])} if conflicts else {"head": reading.head}
        output.result({"holds": not conflicts, **found}, "")
    elif conflicts:
        output.console.print(f"Refused: this event is after {condition.after} and matches.", style="bold red")
        output.events(conflicts)
    else:
        output.console.print(
            f"Holds: up to position {reading.head}, nothing after {condition.after} matches.", style="bold green"
        )
    return bool(conflicts)
