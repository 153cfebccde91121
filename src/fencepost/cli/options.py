"""What several commands take: a store, a query, a condition, a range, the form of the output, a Spark session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import AppendCondition, EventStore, Query
from .. import open as open_address
from ..engine import SQLITE, Address, redacted
from ..errors import InvalidInput, StoreUnavailable
from ..spark.location import object_url
from .output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")

POSITION = click.IntRange(min=0)


def _from_json(parse: Callable[[str], Value], example: str) -> Callable[[str], Value]:
    """The type of an option whose value is JSON. An error shows the example."""

    def parsed(text: str) -> Value:
        try:
            return parse(text)
        except InvalidInput as error:
            raise click.BadParameter(f"{error}; write it like {example}") from None

    return parsed


query_json = _from_json(Query.from_json, '{"items": [{"types": ["WalletOpened"], "tags": ["wallet:w1"]}]}')
condition_json = _from_json(
    AppendCondition.from_json, '{"fail_if_events_match": {"items": [{"tags": ["wallet:w1"]}]}, "after": 7}'
)
store_argument = click.argument("store")
name_argument = click.argument("name")
by_option = click.option("--by", metavar="AUTHOR", help="Who gives the command. Default: the user and the machine.")
json_option = click.option(
    "--json/--table",
    "as_json",
    default=None,
    help="Print JSON lines, or tables. Default: tables on a terminal, JSON lines elsewhere.",
)
after_option = click.option(
    "--after", type=POSITION, default=0, show_default=True, help="Only events after POSITION.", metavar="POSITION"
)
up_to_option = click.option(
    "--up-to", type=POSITION, metavar="POSITION", help="Only events up to and including POSITION."
)
master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT.",
)


def condition_option(help: str) -> Callable[[Command], Command]:
    """--condition, which can be repeated; the command gets a tuple `conditions`."""
    return click.option("--condition", "conditions", type=condition_json, metavar="JSON", multiple=True, help=help)


def query_options(command: Command) -> Command:
    """--type, --tag and --query. The command gets one `query`, which is None without these options."""

    @wraps(command)
    def with_one_query(*, types: tuple[str, ...], tags: tuple[str, ...], query: Query | None, **others: Any) -> Any:
        if query is None and (types or tags):
            query = Query.of(types=types, tags=tags)
        elif types or tags:
            raise click.UsageError("--query is the complete query: put the types and tags into it")
        return command(query=query, **others)

    decorated: Any = with_one_query
    for option in (
        click.option(
            "--query", type=query_json, metavar="JSON", help="The complete query, instead of --type and --tag."
        ),
        click.option(
            "--tag", "tags", multiple=True, metavar="TAG", help="Only events with TAG; if repeated, with all of them."
        ),
        click.option(
            "--type", "types", multiple=True, metavar="TYPE", help="Only events of TYPE; if repeated, of any of them."
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def numbered(lines: Iterable[bytes], decode: Callable[[bytes], Value]) -> Iterator[tuple[int, Value]]:
    """Decode each line that is not empty; with its number, which an error names as well."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                decoded = decode(line)
            except InvalidInput as error:
                raise InvalidInput(f"line {number}, {error.field}", error.problem) from None
            yield number, decoded


def open_store(address: str, **options: Any) -> EventStore:
    """Open an existing store. Only `init` creates one, so a mistyped path does not. `options` are for SQLite files."""
    parsed = Address.parse(address)
    if parsed.kind is not SQLITE:
        with extras():
            return open_address(parsed)
    check_exists(parsed.path)
    return open_address(parsed, create=False, **options)


def open_source(address: str) -> EventStore:
    """Open an existing store to read all of it. An SQLite file is never changed, not even to upgrade its format."""
    return open_store(address, read_only=True)


def open_target(address: str) -> EventStore:
    """Open a store to restore events into. An SQLite file is created if it does not exist; other stores must exist."""
    return open_address(address) if Address.parse(address).kind is SQLITE else open_store(address)


@contextmanager
def extras() -> Iterator[None]:
    """Turn the ImportError of an extra that is not installed into a usage error; its message names the extra."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(str(error)) from error


def sqlite_address(address: str, command: str) -> str:
    """The address if it names an existing SQLite file; otherwise an error, for commands that work on files only."""
    parsed = Address.parse(address)
    if parsed.kind is not SQLITE:
        raise click.UsageError(f"{command} works on SQLite files only, and {parsed} is not one")
    check_exists(parsed.path)
    return address


def check_exists(path: str) -> None:
    """Raise `StoreUnavailable` with advice if there is no file at this path."""
    try:
        os.stat(path)
    except FileNotFoundError:
        folder = os.path.dirname(os.path.abspath(path))
        advice = f"create one with `fencepost init {path}`" if os.path.isdir(folder) else f"{folder} does not exist"
        raise StoreUnavailable(f"{path}: there is no such store; {advice}") from None
    except (OSError, ValueError):
        pass  # opening the file reports the reason


def lake_place(text: str) -> str:
    """The path of a lake's folder, or its URL in an object store."""
    url = object_url(text, "FOLDER")
    if url is None:
        return local_path(text)
    with extras():
        from ..spark import delta  # noqa: F401  without deltalake, say so before anything is done
    return url


def local_path(text: str) -> str:
    """The path of a file or folder. Refuses an address of a database, which may hold a password."""
    if Address.parse(text).kind is not SQLITE:
        raise click.BadParameter(f"expected a path, not the address {redacted(text)}")
    return text


@contextmanager
def spark_session(master: str, command: str, output: Output) -> Iterator[SparkSession]:
    """A session that ends with the command. An active session of this process is used instead and left running."""
    with extras():
        from pyspark.sql import SparkSession

        from ..spark import session
        from ..spark.spark_session import interruptible, jobs_of
    found = SparkSession.getActiveSession()
    with output.progress.status("starting Spark"):
        spark = session(master, app=f"fencepost {command}")
    with interruptible(jobs_of(spark)):
        try:
            yield spark
        finally:
            if found is None:
                spark.stop()
