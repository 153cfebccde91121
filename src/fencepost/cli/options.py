"""What several commands ask for in the same words: a store, a query, a range, a form of output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from ..errors import InvalidInput, StoreUnavailable
from ..model import AppendCondition, Query
from ..opening import open as open_address
from ..store import EventStore

Command = TypeVar("Command", bound=Callable[..., Any])

OTHER_SCHEMES = {"memory", "fdb"}  # of addresses without //, which would be taken for paths
POSITION = click.IntRange(min=0)


def query_json(text: str) -> Query:
    """A query in the form of `Query.to_json`."""
    try:
        return Query.from_json(text)
    except InvalidInput as error:
        example = """write it like {"items": [{"types": ["WalletOpened"], "tags": ["wallet:w1"]}]}"""
        raise click.BadParameter(f"{error}; {example}") from None


def condition_json(text: str) -> AppendCondition:
    """A condition in the form of `AppendCondition.to_json`."""
    try:
        return AppendCondition.from_json(text)
    except InvalidInput as error:
        example = """write it like {"fail_if_events_match": {"items": [{"tags": ["wallet:w1"]}]}, "after": 7}"""
        raise click.BadParameter(f"{error}; {example}") from None


store_argument = click.argument("store")
json_option = click.option(
    "--json/--table",
    "as_json",
    default=None,
    help="JSON, or a table for people. A table on a terminal, JSON elsewhere.",
)
after_option = click.option(
    "--after", type=POSITION, default=0, show_default=True, help="Only events above POSITION.", metavar="POSITION"
)


def query_options(command: Command) -> Command:
    """--type, --tag and --query, which `chosen_query` makes one query of."""
    for option in (
        click.option("--query", type=query_json, metavar="JSON", help="The whole query, instead of --type and --tag."),
        click.option(
            "--tag", "tags", multiple=True, metavar="TAG", help="Events that have TAG; repeated: all of them."
        ),
        click.option("--type", "types", multiple=True, metavar="TYPE", help="Events of TYPE; repeated: any of them."),
    ):
        command = option(command)
    return command


def chosen_query(types: tuple[str, ...], tags: tuple[str, ...], query: Query | None) -> Query:
    """Every event, when nothing is asked for."""
    if query is None:
        return Query.of(types=types, tags=tags)
    if types or tags:
        raise click.UsageError("--query is the whole query: put the types and tags into it")
    return query


def file_path(address: str) -> str | None:
    """The path, if the address means an SQLite file."""
    scheme, colon, rest = address.partition(":")
    if scheme == "sqlite" and colon:
        return rest
    return None if "://" in address or (scheme in OTHER_SCHEMES and colon) else address


def open_store(address: str) -> EventStore:
    """A store that is there: only `init` makes one, so that a mistyped path does not."""
    path = file_path(address)
    if path is None:
        with extras():
            return open_address(address)
    check_exists(path)
    return open_address(address, create=False)


@contextmanager
def extras() -> Iterator[None]:
    """An engine whose extra is not installed says so, and which it is, when it is imported."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(str(error)) from error


def only_file(address: str, command: str) -> str:
    """The path of a store that is an SQLite file, for commands that work on nothing else."""
    path = file_path(address)
    if path is None:
        raise click.UsageError(f"{command} works on SQLite files, and {address!r} is none")
    check_exists(path)
    return path


def check_exists(path: str) -> None:
    if not os.path.exists(path):
        raise StoreUnavailable(f"{path}: there is no such store; make one with `fencepost init {path}`")
