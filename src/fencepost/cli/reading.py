"""`read`, `tail` and `head`: what is in a store."""

from __future__ import annotations

from itertools import islice

import click

from ..model import Query
from ..store import EventStore
from .options import POSITION, after_option, chosen_query, json_option, open_store, query_options, store_argument
from .output import PAGE_EVENTS, Output


@click.command("read")
@store_argument
@query_options
@after_option
@click.option("--upto", type=POSITION, metavar="POSITION", help="Only events up to and including POSITION.")
@click.option("--limit", type=click.IntRange(min=1), metavar="EVENTS", help="At most so many events.")
@click.option("--backwards", is_flag=True, help="The newest event first.")
@json_option
def read_command(
    store: str,
    types: tuple[str, ...],
    tags: tuple[str, ...],
    query: Query | None,
    after: int,
    upto: int | None,
    limit: int | None,
    backwards: bool,
    as_json: bool | None,
) -> None:
    """Print the events that match, in the order of their positions."""
    output = Output(as_json)
    wanted = chosen_query(types, tags, query)
    with open_store(store) as opened:
        reading = opened.read(wanted, after=after, upto=upto, limit=limit, backwards=backwards)
        count = 0
        while page := list(islice(reading, PAGE_EVENTS)):
            output.events(page)
            count += len(page)
        if not output.json:
            events = "1 event" if count == 1 else f"{count} events"
            output.console.print(f"{events}; complete up to position {reading.head}", style="dim")


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
    help="So many of the last events.",
)
@click.option("--after", type=POSITION, metavar="POSITION", help="All events above POSITION, instead of the last ones.")
@click.option("--follow", "-f", is_flag=True, help="Go on with each new event as it is stored, until Ctrl-C.")
@json_option
def tail_command(
    store: str,
    types: tuple[str, ...],
    tags: tuple[str, ...],
    query: Query | None,
    limit: int,
    after: int | None,
    follow: bool,
    as_json: bool | None,
) -> None:
    """Print the last events that match, and with -f those to come."""
    output = Output(as_json)
    wanted = chosen_query(types, tags, query)
    with open_store(store) as opened:
        if after is None:
            after = _print_last(opened, wanted, limit, output)
        elif not follow:
            reading = opened.read(wanted, after=after)
            while page := list(islice(reading, PAGE_EVENTS)):
                output.events(page)
        output.flush()
        if follow:
            for event in opened.subscribe(wanted, after=after):
                output.events([event])
                output.flush()


def _print_last(store: EventStore, query: Query, limit: int, output: Output) -> int:
    """Print the last events, and return the head up to which they are the last."""
    if limit == 0:
        return store.head()
    reading = store.read(query, limit=limit, backwards=True)
    last = list(reading)
    output.events(last[::-1])
    return reading.head


@click.command("head")
@store_argument
def head_command(store: str) -> None:
    """Print the position of the last event, 0 when there is none."""
    with open_store(store) as opened:
        click.echo(opened.head())
