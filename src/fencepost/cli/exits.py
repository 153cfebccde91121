"""How a command ends: its exit code, and its error message in one line.

    0    success
    1    refused: a condition failed, or would fail; nothing was written and the store is intact
    2    a mistake in the command line or in the input
    3    the storage failed: missing, busy, full, corrupt, unreachable, or not a Fencepost store
    4    the content is not sound: `verify` or `audit` found problems, or a stored event does not fit its class
    5    `audit` proved nothing: no append was recorded
    6    a consumer is stalled, or stopped because of a failure, or cannot run
    70   a bug in Fencepost, with its traceback
    130  interrupted by Ctrl-C
    141  the reader of the output closed it, as in `fencepost read ... | head -1`

A bug has its own code because an uncaught exception in Python exits with 1: scripts must be able to tell a refused
append from a crash. tests/cli/test_exits.py holds these codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from ..engine import scrubbed
from ..errors import AppendRefused, FencepostError, InvalidInput, ReadingNotFinished, StoreError
from .output import printable

DONE: Final = 0
REFUSED: Final = 1
MISUSED: Final = 2
STORAGE: Final = 3
UNSOUND: Final = 4
UNPROVEN: Final = 5
STALLED: Final = 6
BUG: Final = 70
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141


def codes() -> tuple[tuple[type[FencepostError], int], ...]:
    """Each class of errors and its exit code. Imports decisions and consumers only here, after an error occurred."""
    from ..consumers import CommandRefused, ConsumerError, NoSuchConsumer
    from ..decisions import DefinitionError, EventUnreadable

    return (
        (AppendRefused, REFUSED),
        (InvalidInput, MISUSED),
        (DefinitionError, MISUSED),
        (StoreError, STORAGE),
        (EventUnreadable, UNSOUND),
        (ReadingNotFinished, BUG),
        (CommandRefused, REFUSED),
        (NoSuchConsumer, MISUSED),
        (ConsumerError, STALLED),
    )


def exit_code(error: FencepostError) -> int:
    return next((code for kind, code in codes() if isinstance(error, kind)), BUG)


def usage_line(error: click.ClickException) -> str:
    """The message of a click error in one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fencepost"
    message = error.format_message().rstrip(".")
    return f"{message}; see `{command} --help`"


def print_error(text: str, addresses: Iterable[str] = ()) -> None:
    """Print an error on one line of standard error, without the secrets of the given addresses."""
    click.echo(f"fencepost: {printable(scrubbed(text, addresses))}", err=True)
