"""`init` and `append`: what changes a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice

import click

from ..errors import FencepostError, InvalidInput
from ..model import MAX_EVENTS, AppendCondition, Event, Placed, Query
from ..opening import open as open_address
from ..store import EventStore
from .events import parse
from .options import condition_json, file_path, json_option, open_store, query_json, store_argument
from .output import Output


@click.command("init")
@store_argument
@json_option
def init_command(store: str, as_json: bool | None) -> None:
    """Make an empty store; one that is there already is left as it is."""
    path = file_path(store)
    if path is None:
        raise click.UsageError("init makes SQLite files; for PostgreSQL there is `fencepost postgres install`")
    found = os.path.exists(path)
    with open_address(store) as opened:
        head = opened.head()
    sentence = f"{path} is there already, with its head at {head}." if found else f"{path} is ready."
    Output(as_json).result({"store": path, "created": not found, "head": head}, sentence)


@click.command("append")
@store_argument
@click.option(
    "--condition",
    "conditions",
    type=condition_json,
    metavar="JSON",
    multiple=True,
    help="Refuse the append if an event matches; repeated: every condition must hold.",
)
@click.option("--unless", type=query_json, metavar="JSON", help="Write nothing, and exit with 0, if an event matches.")
@click.option(
    "--batch", type=click.IntRange(1, MAX_EVENTS), metavar="EVENTS", help="One append for every so many events."
)
@json_option
def append_command(
    store: str, conditions: tuple[AppendCondition, ...], unless: Query | None, batch: int | None, as_json: bool | None
) -> None:
    """Append events from standard input, one JSON object a line.

    Without --batch they are one append: all of them are stored, or none.

    \b
    {"type": "WalletOpened", "tags": ["wallet:w1"], "data": {"owner": "Ada"}}
    """
    if batch is not None and (conditions or unless is not None):
        raise click.UsageError("--batch makes several appends, and a condition guards one: leave out one of them")
    output = Output(as_json)
    with open_store(store) as opened:
        events = parse(sys.stdin.buffer)
        if batch is None:
            _announce(output, opened.append(_all(events), conditions, unless=unless))
        else:
            _append_in_batches(opened, events, batch, output)


def _all(events: Iterator[Event]) -> list[Event]:
    """All of the input, unless it is too long for one append: nobody waits for input that cannot be taken."""
    taken = list(islice(events, MAX_EVENTS + 1))
    if len(taken) > MAX_EVENTS:
        raise InvalidInput(
            "events", f"more than {MAX_EVENTS}, the limit of one append; say how many at once: --batch 1000"
        )
    if not taken:
        raise InvalidInput(
            "events", 'none on standard input; write one JSON object a line, like {"type": "WalletOpened"}'
        )
    return taken


def _append_in_batches(store: EventStore, events: Iterator[Event], batch: int, output: Output) -> None:
    stored = 0
    try:
        while taken := list(islice(events, batch)):
            _announce(output, store.append(taken))
            output.flush()
            stored += len(taken)
    except FencepostError as error:
        if stored:
            error.args = (f"{error}; the {stored} events before this batch are stored",)
        raise


def _announce(output: Output, placed: Placed) -> None:
    where = f"position {placed.first}" if placed.first == placed.last else f"positions {placed.first} to {placed.last}"
    sentence = f"Nothing was written: it is there already, at {where}." if placed.already else f"Stored at {where}."
    output.result({"first": placed.first, "last": placed.last, "already": placed.already}, sentence)
