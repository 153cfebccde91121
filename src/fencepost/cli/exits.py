"""How a run ends: exit codes that scripts can rely on, and errors in one line.

    0    done
    1    refused: a condition failed, or would; the store is fine and nothing was written
    2    a mistake in the command line or in the input
    3    the storage said no: missing, busy, full, corrupt, or not a store
    4    the content is not sound: `verify` or `audit` has found problems, or a stored event does not fit its class
    70   a bug in Fencepost, with its traceback
    130  interrupted by Ctrl-C
    141  the reader of our output has gone away, as in `fencepost read ... | head -1`

A bug has a code of its own, because Python's would be 1: "refused" must never mean "crashed".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from ..errors import AppendRefused, FencepostError, InvalidInput, ReadingNotFinished, StoreError

DONE: Final = 0
REFUSED: Final = 1
MISUSED: Final = 2
STORAGE: Final = 3
UNSOUND: Final = 4
BUG: Final = 70
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141


def codes() -> tuple[tuple[type[FencepostError], int], ...]:
    """Each kind of error and its exit code; the errors of decisions are loaded only when there is an error to tell."""
    from ..decisions.errors import DefinitionError, EventUnreadable

    return (
        (AppendRefused, REFUSED),
        (InvalidInput, MISUSED),
        (DefinitionError, MISUSED),
        (StoreError, STORAGE),
        (EventUnreadable, UNSOUND),
        (ReadingNotFinished, BUG),
    )


def exit_code(error: FencepostError) -> int:
    return next((code for kind, code in codes() if isinstance(error, kind)), BUG)


def usage_line(error: click.ClickException) -> str:
    """What click says in several lines, in one, with where to read on."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fencepost"
    message = error.format_message().rstrip(".")
    return f"{message}; see `{command} --help`"


def printable(text: str) -> str:
    """On one line, and unable to steer the terminal: stored text may hold any character.

    >>> printable("a\\tb\\x1b[2J")
    'a\\\\tb\\\\x1b[2J'
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def complain(text: str, echo: Callable[..., None] = click.echo) -> None:
    echo(f"fencepost: {printable(text)}", err=True)
