"""`consume` runs the consumers of a program in a process of its own; `check-types` tries its event classes.

Both import modules of the program. These are also looked for in the current folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

from .. import EventStore
from ..engine import configure_logs, pause
from . import exits
from .options import after_option, extras, json_option, master_option, open_store, spark_session, store_argument
from .output import Output, progress_bar

if TYPE_CHECKING:
    from ..consumers import Consumer, Runner

LOOK_S = 0.05


@click.command("consume")
@store_argument
@click.argument("consumers", nargs=-1, required=True)
@click.option("--once", is_flag=True, help="Handle what is stored, then end.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log to standard error what is at least this severe.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of the log."
)
@json_option
def consume_command(
    store: str, consumers: tuple[str, ...], once: bool, log_level: str, log_format: str, as_json: bool | None
) -> int:
    """Run CONSUMERS on the store until SIGTERM or Ctrl-C.

    Each is written module:name, or module for all consumers of a module. Modules are also looked for in the current
    folder. With --once, exits with 6 if a consumer stopped because of a failure.
    """
    from ..consumers import start

    output = Output(as_json)
    configure_logs(log_format, log_level)
    chosen = [each for text in consumers for each in load(text)]
    with open_store(store) as opened, _terminable(), start(opened, *chosen) as runner:
        names = ", ".join(each.name for each in chosen)
        output.result({"consumers": [each.name for each in chosen], "holder": runner.holder}, f"Running {names}.")
        output.flush()
        if once:
            return _until_caught_up(runner, opened)
        runner.wait()
        runner.check()
    # Only a signal ends the command with 0; here every consumer has ended by itself.
    exits.print_error("every consumer has ended without being told to; the log above has the cause")
    return exits.STALLED


@contextmanager
def _terminable() -> Iterator[None]:
    """End as after Ctrl-C when SIGTERM arrives, but with exit code 0."""

    def ended(number: int, frame: object) -> None:
        raise SystemExit(exits.DONE)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _until_caught_up(runner: Runner, store: EventStore) -> int:
    head = store.head()
    while True:
        runner.check()
        partition_runners = runner.partition_runners
        if any(each.recorder.control.stopped is not None for each in partition_runners):
            return exits.STALLED
        if all(each.caught_up(head) for each in partition_runners):
            return exits.DONE
        pause(LOOK_S)


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise
        raise click.UsageError(f"there is no module {name!r}") from None


def load(text: str) -> list[Consumer]:
    """The consumers that module:name or module means."""
    from ..consumers import Consumer

    module_name, _, name = text.partition(":")
    module = _module(module_name)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Consumer):
            raise click.UsageError(f"{text}: {name!r} is not a consumer of the module")
        return [found]
    every = list({id(each): each for each in vars(module).values() if isinstance(each, Consumer)}.values())
    if not every:
        raise click.UsageError(f"the module {module_name!r} has no consumer")
    return every


@click.command("check-types")
@store_argument
@click.argument("modules", nargs=-1, required=True)
@after_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Decode only the first and then every N-th event of each type.",
)
@click.option("--spark", "on_spark", is_flag=True, help="Decode on Spark, for a log that takes one process too long.")
@master_option
@json_option
def check_types_command(
    store: str,
    modules: tuple[str, ...],
    after: int,
    sample: int,
    on_spark: bool,
    master: str,
    as_json: bool | None,
) -> int:
    """Decode every stored event with the event classes of MODULES.

    Run it with the code that is about to be deployed. Exits with 4 and names position, type and reason of the events
    that cannot be decoded.
    """
    from ..consumers import check_types, event_classes

    output = Output(as_json)
    classes = [each for name in modules for each in event_classes(_module(name))]
    with open_store(store) as opened:
        head = opened.head()
        if not on_spark:
            with progress_bar(output) as on_progress:
                checked = check_types(
                    opened,
                    classes,
                    after=after,
                    sample=sample,
                    on_progress=lambda at: on_progress("checking", at, head),
                )
    if on_spark:
        with extras():
            from ..spark import check_types as check_on_spark
        with spark_session(master, "check-types", output) as spark, progress_bar(output) as on_progress:
            checked = check_on_spark(
                spark, store, classes, after=after, sample=sample, on_progress=partial(on_progress, "checking")
            )
    for each in checked.unreadable:
        output.result(each, f"position {each.position}, {each.type}: {each.reason}")
    total, count = sum(checked.decoded.values()), len(checked.unreadable)
    value = {"decoded": checked.decoded, "unreadable": count}
    output.result(value, f"{total:,} events of {len(checked.decoded)} types were decoded; {count} could not be.")
    return exits.UNSOUND if checked.unreadable else exits.DONE
