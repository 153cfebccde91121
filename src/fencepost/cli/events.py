"""The commands on the events of any store: `append`, `read`, `tail`, `head` and `check`.

`read` and `append` use the same JSON lines, so the events of one store can be piped into another.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice

import click

from .. import AppendCondition, Event, EventStore, Placed, Query, Reading, SequencedEvent
from ..engine import MAX_EVENTS
from ..errors import FencepostError, InvalidInput
from ..tools import document_of, event_from_json
from . import exits
from .options import (
    POSITION,
    after_option,
    condition_option,
    json_option,
    numbered,
    open_store,
    query_json,
    query_options,
    store_argument,
    up_to_option,
)
from .output import PAGE_EVENTS, Output


@click.command("append")
@store_argument
@condition_option("Refuse the append if an event matches this condition. Can be repeated: every condition must hold.")
@click.option(
    "--unless", type=query_json, metavar="JSON", help="Write nothing, and exit with 0, if a stored event matches."
)
@click.option(
    "--batch", type=click.IntRange(1, MAX_EVENTS), metavar="EVENTS", help="Make one append for every EVENTS events."
)
@json_option
def append_command(
    store: str, conditions: tuple[AppendCondition, ...], unless: Query | None, batch: int | None, as_json: bool | None
) -> None:
    """Append the events on standard input, one JSON object per line.

    Without --batch they are one append: either all of them are stored or none.

    \b
    {"type": "WalletOpened", "tags": ["wallet:w1"], "data": {"owner": "Ada"}}
    """
    if batch is not None and (conditions or unless is not None):
        raise click.UsageError(
            "--batch makes several appends, and --condition and --unless apply to one append: use one or the other"
        )
    output = Output(as_json)
    with open_store(store) as opened:
        events = (event for _, event in numbered(sys.stdin.buffer, event_from_json))
        if batch is None:
            _print_placed(output, opened.append(_all(events), conditions, unless=unless))
        else:
            _append_in_batches(opened, events, batch, output)


def _all(events: Iterator[Event]) -> list[Event]:
    """All events of the input. Stops reading when there are too many for one append."""
    taken = list(islice(events, MAX_EVENTS + 1))
    if len(taken) > MAX_EVENTS:
        raise InvalidInput("events", f"more than {MAX_EVENTS}, the limit of one append; split them with --batch 1000")
    if not taken:
        raise InvalidInput(
            "events", 'none on standard input; write one JSON object per line, like {"type": "WalletOpened"}'
        )
    return taken


def _append_in_batches(store: EventStore, events: Iterator[Event], batch: int, output: Output) -> None:
    stored = 0
    try:
        while taken := list(islice(events, batch)):
            _print_placed(output, store.append(taken))
            output.flush()
            stored += len(taken)
    except FencepostError as error:
        if stored:
            error.args = (f"{error}; the {stored} events before this batch are stored",)
        raise


def _print_placed(output: Output, placed: Placed) -> None:
    where = f"position {placed.first}" if placed.first == placed.last else f"positions {placed.first} to {placed.last}"
    sentence = f"Nothing was written: already stored at {where}." if placed.already else f"Stored at {where}."
    output.result({"first": placed.first, "last": placed.last, "already": placed.already}, sentence)


@click.command("read")
@store_argument
@query_options
@after_option
@up_to_option
@click.option("--limit", type=click.IntRange(min=1), metavar="EVENTS", help="Print at most EVENTS events.")
@click.option("--backwards", is_flag=True, help="Newest event first.")
@json_option
def read_command(
    store: str,
    query: Query | None,
    after: int,
    up_to: int | None,
    limit: int | None,
    backwards: bool,
    as_json: bool | None,
) -> None:
    """Print the matching events in the order of their positions."""
    output = Output(as_json)
    with open_store(store) as opened:
        reading = opened.read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        count = _print_pages(reading, output)
        if not output.json:
            events = "1 event" if count == 1 else f"{count} events"
            output.say(f"{events}; complete up to position {reading.head}", "dim")


def _print_pages(reading: Reading, output: Output) -> int:
    """Print the events page by page and return their number."""
    count = 0
    while page := list(islice(reading, PAGE_EVENTS)):
        output.events(page)
        count += len(page)
    return count


@click.command("tail")
@store_argument
@query_options
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="EVENTS",
    help="Print the last EVENTS events.",
)
@click.option(
    "--after", type=POSITION, metavar="POSITION", help="Print all events after POSITION instead of the last ones."
)
@click.option("--follow", "-f", is_flag=True, help="Also print each new event as it is stored, until Ctrl-C.")
@json_option
def tail_command(
    store: str,
    query: Query | None,
    limit: int,
    after: int | None,
    follow: bool,
    as_json: bool | None,
) -> None:
    """Print the last matching events, and with -f each new one."""
    output = Output(as_json)
    with open_store(store) as opened:
        if after is None:
            after = _print_last(opened, query, limit, output)
        elif not follow:
            _print_pages(opened.read(query, after=after), output)
        output.flush()
        if follow:
            for event in opened.subscribe(query, after=after):
                output.events([event])
                output.flush()


def _print_last(store: EventStore, query: Query | None, limit: int, output: Output) -> int:
    """Print the last events, and return the head of the store when they were read."""
    if limit == 0:
        return store.head()
    reading = store.read(query, limit=limit, backwards=True)
    last = list(reading)
    output.events(last[::-1])
    return reading.head


@click.command("head")
@store_argument
def head_command(store: str) -> None:
    """Print the position of the last event, or 0 if the store is empty."""
    with open_store(store) as opened:
        click.echo(opened.head())


@click.command("check")
@store_argument
@query_options
@after_option
@condition_option("The complete condition, as for `append`. Can be repeated.")
@json_option
def check_command(
    store: str,
    query: Query | None,
    after: int,
    conditions: tuple[AppendCondition, ...],
    as_json: bool | None,
) -> int:
    """Check whether a condition holds now, and print the event that violates it.

    The condition is that no event after --after matches --type, --tag or --query; --condition gives a
    complete condition instead. Exits with 1 if an append with this condition would be refused.
    """
    if conditions and (query is not None or after):
        raise click.UsageError("--condition is the complete condition: put the query and after into it")
    if query is not None:
        conditions = (AppendCondition(query, after),)
    if not conditions:
        raise click.UsageError("a condition is missing: use --type, --tag, --query or --condition")
    with open_store(store) as opened:
        conflicts = [_check(opened, condition, Output(as_json)) for condition in conditions]
    return exits.REFUSED if any(conflicts) else exits.DONE


def _check(store: EventStore, condition: AppendCondition, output: Output) -> bool:
    """Print whether the condition holds. Returns True if it does not."""
    reading = store.read(condition.fail_if_events_match, after=condition.after, limit=1)
    conflicts: Sequence[SequencedEvent] = list(reading)
    if output.json:
        found = {"conflict": document_of(conflicts[0])} if conflicts else {"head": reading.head}
        output.result({"holds": not conflicts, **found}, "")
    elif conflicts:
        output.say(f"Refused: this event matches and is after {condition.after}.", "bold red")
        output.events(conflicts)
    else:
        output.say(f"Holds: no event after {condition.after} matches, up to position {reading.head}.", "bold green")
    return bool(conflicts)
