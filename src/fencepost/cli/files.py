"""The commands on whole stores: `init`, `postgres install`, `verify`, `salvage` and `backup`.

`init` and `salvage` work on SQLite files. `verify` and `backup` know more of SQLite files than of other engines: the
checksums, the index and the checkpoints. Of other stores, `verify` checks what can be read, and `backup` copies the log
into a new SQLite file. `verify` and `salvage` never change what they read, whatever it holds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import click

from .. import open as open_address
from ..engine import MEMORY, POSTGRES, SQLITE, Address, Report, Salvage, backup, durable_file, salvage, verify
from ..errors import FormatUnsupported, InvalidInput, StoreUnavailable
from ..tools import check_log, copy_log
from . import exits
from .options import POSITION, extras, json_option, local_path, open_store, sqlite_address, store_argument
from .output import Output, picked, progress_bar

NAMED: Final = 20  # a sentence names at most this many ranges or checkpoints; JSON names all of them


@click.command("init")
@store_argument
@json_option
def init_command(store: str, as_json: bool | None) -> None:
    """Create an empty SQLite store. An existing store is left unchanged."""
    address = Address.parse(store)
    if address.kind is not SQLITE:
        raise click.UsageError("init creates SQLite files only; for PostgreSQL use `fencepost postgres install`")
    path = address.path
    found = os.path.exists(path) and os.path.getsize(path) > 0  # an empty file becomes a store
    with open_address(store) as opened:
        head = opened.head()
    sentence = f"{path} exists already; its head is {head}." if found else f"{path} is ready."
    Output(as_json).result({"store": path, "created": not found, "head": head}, sentence)


@click.group("postgres")
def postgres_command() -> None:
    """Manage stores in a PostgreSQL database."""


@postgres_command.command("install")
@click.argument("url")
@click.option(
    "--schema",
    metavar="SCHEMA",
    help="The schema of the store, if the URL does not name it; each schema holds one store.  [default: fencepost]",
)
@json_option
def install_command(url: str, schema: str | None, as_json: bool | None) -> None:
    """Create an empty store in a schema of the database URL."""
    address = Address.parse(url)
    if address.kind is not POSTGRES:
        raise click.UsageError(f"{address} is not the address of a PostgreSQL database: {POSTGRES.form}")
    named = address.options.get("schema")
    if schema is not None and named not in (None, schema):
        raise click.UsageError(f"the URL names the schema {named}, and --schema {schema}; name it once")
    schema = str(named or schema or "fencepost")
    with extras():
        try:
            open_address(address.text, schema=schema, create=False).close()
            created = False
        except FormatUnsupported:  # there is no store; one of another version is refused again below
            open_address(address.text, schema=schema, create=True).close()
            created = True
    sentence = f"The store in schema {schema} is ready." if created else f"Schema {schema} has a store already."
    Output(as_json).result({"schema": schema, "created": created}, sentence)


@click.command("verify")
@store_argument
@json_option
def verify_command(store: str, as_json: bool | None) -> int:
    """Verify a store by reading all of it; of an SQLite file, also every checksum and the index.

    If something is wrong, says what is damaged and which events are intact, and exits with 4. The store is not
    changed.
    """
    if _is_elsewhere(store):
        return _verify_by_reading(store, Output(as_json))
    path = sqlite_address(store, "verify")
    output = Output(as_json)
    with output.progress.status("verifying") as status:
        report = verify(path, on_progress=lambda done, all: status.update(f"verifying: {done:,} of {all:,} events"))
    if output.json:
        found = picked(report, "sound", "events", "postings", "appends", "checkpoints", "records")
        found["problems"] = [str(problem) for problem in report.problems]
        found["damaged"] = sorted({problem.part for problem in report.problems})
        output.result(found | picked(report, "whole"), "")
    else:
        _print_report(report, output)
    return exits.DONE if report.sound else exits.UNSOUND


def _is_elsewhere(store: str) -> bool:
    """Whether the store is neither an SQLite file nor one that ends with this process."""
    return Address.parse(store).kind not in (SQLITE, MEMORY)


def _verify_by_reading(store: str, output: Output) -> int:
    gapless = not Address.parse(store).kind.has_gaps
    with open_store(store) as opened, output.progress.status("verifying") as status:
        checked = check_log(
            opened,
            gapless=gapless,
            on_progress=lambda done, all: status.update(f"verifying: up to {done:,} of {all:,}"),
        )
    counted = (
        f"{checked.events:,} events, {checked.appends:,} recorded appends, {checked.checkpoints:,} checkpoints and "
        f"{checked.records:,} records up to position {checked.head}"
    )
    if output.json:
        output.result(picked(checked, "sound", "head", "events", "appends", "checkpoints", "records", "problems"), "")
    else:
        for problem in checked.problems[:NAMED]:
            output.say(problem, "red")
        if checked.sound:
            output.say(f"Sound: {counted} can be read.", "bold green")
        else:
            output.say(f"Not sound: {len(checked.problems)} problems in {counted}.", "bold red")
    return exits.DONE if checked.sound else exits.UNSOUND


def _print_report(report: Report, output: Output) -> None:
    counted = (
        f"{report.events:,} events, {report.postings:,} postings, {report.appends:,} recorded appends, "
        f"{report.checkpoints:,} checkpoints and {report.records:,} records"
    )
    for problem in report.problems:
        output.say(f"{problem.part}: {problem}", "red")
    if not report.sound:
        output.say(f"Not sound: {len(report.problems)} problems in {counted}.", "bold red")
        if report.log_is_sound:
            advice = "Every event is intact: `fencepost salvage` copies them into a new store, with a new index."
        elif report.whole:
            advice = f"Events {_ranges(report.whole)} are intact: `fencepost salvage` copies them into a new store."
        else:
            advice = "SQLite cannot read the events: `fencepost salvage` copies those on undamaged pages."
        output.say(advice)
    else:
        output.say(f"Sound: {counted} agree.", "bold green")


@click.command("salvage")
@store_argument
@click.argument("to", type=local_path)
@click.option(
    "--head",
    type=POSITION,
    metavar="POSITION",
    help="The last position that the store ever assigned, if events are missing at the end.",
)
@json_option
def salvage_command(store: str, to: str, head: int | None, as_json: bool | None) -> int:
    """Copy the intact events of a damaged STORE into the new file TO.

    Every event on undamaged pages keeps its position, time and id. An event of type fencepost.lost takes the place of
    each lost event. STORE is only read; SQLite need not be able to open it. Exits with 4 if anything is lost.
    """
    path = sqlite_address(store, "salvage")
    output = Output(as_json)
    with output.progress.status("reading") as status:
        saved = salvage(
            path, to, head=head, on_progress=lambda done, all: status.update(f"reading: {done:,} of {all:,} events")
        )
    if output.json:
        counted = picked(saved, "head", "events", "appends", "checkpoints", "records")
        output.result({"to": to, **counted, **picked(saved, "lost", "ahead", "unreadable")}, "")
    else:
        _print_salvage(saved, to, output)
    return exits.DONE if saved.complete else exits.UNSOUND


def _print_salvage(saved: Salvage, to: str, output: Output) -> None:
    output.say(
        f"{to} holds {saved.events:,} events up to position {saved.head}, {saved.appends:,} recorded "
        f"appends and {saved.checkpoints:,} checkpoints."
    )
    if saved.lost:
        count = sum(last - first + 1 for first, last in saved.lost)
        output.say(f"Lost: {count:,} events, at {_ranges(saved.lost)}.", "bold red")
    if saved.ahead:
        output.say(
            f"These checkpoints are above the last event: {_first_few([repr(name) for name in saved.ahead])}. If they "
            "belong to this store, events are lost at the end: pass the last position that the store ever assigned "
            "as --head, or their consumers will skip new events.",
            "bold red",
        )
    if saved.unreadable:
        output.say(f"Not all rows of these tables could be read: {', '.join(saved.unreadable)}.", "bold red")


def _ranges(ranges: Sequence[tuple[int, int]]) -> str:
    """
    >>> _ranges([(1, 1), (3, 7)])
    '1, 3 to 7'
    """
    return _first_few([str(first) if first == last else f"{first} to {last}" for first, last in ranges])


def _first_few(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


@click.command("backup")
@store_argument
@click.argument("to", type=local_path)
@json_option
def backup_command(store: str, to: str, as_json: bool | None) -> None:
    """Copy a store into the new SQLite file TO. Other processes can write to the store meanwhile.

    The copy of an SQLite file has everything. The copy of another store has the log and the recorded conditions, not
    the checkpoints of consumers.
    """
    output = Output(as_json)
    if _is_elsewhere(store):
        head = _backup_by_copying(store, to, output)
    else:
        path = sqlite_address(store, "backup")
        with output.progress.status("copying"):
            head = backup(path, to)
    output.result({"to": to, "head": head}, f"{to} is complete up to position {head}.")


def _backup_by_copying(store: str, to: str, output: Output) -> int:
    try:
        with (
            open_store(store) as source,
            durable_file(to, sidecars=("-wal", "-shm")) as draft,
            open_address(draft) as target,
            progress_bar(output) as on_progress,
        ):
            return copy_log(source, target, records=True, on_progress=on_progress).head
    except FileExistsError:
        raise InvalidInput("to", f"{to} exists already; name a new file") from None
    except OSError as error:
        raise StoreUnavailable(f"{to}: the file cannot be created: {error.strerror}") from error
