"""The table of commands, and `run`, which runs one command line and returns its exit code.

Every error, including a traceback, is printed without the passwords of the addresses in the command line:
tests/cli/test_secrets.py.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from ..engine import scrubbed
from ..errors import FencepostError
from . import exits

LONGEST_ADDRESS: Final = 4_096  # longer arguments, such as queries, are not searched for passwords: it takes too long

# The module of each command or group; the function is named after the command, followed by `_command`.
COMMANDS: Final = {
    "init": "files",
    "append": "events",
    "read": "events",
    "tail": "events",
    "head": "events",
    "stats": "stats",
    "check": "events",
    "verify": "files",
    "salvage": "files",
    "backup": "files",
    "copy": "transfer",
    "export": "transfer",
    "import": "transfer",
    "postgres": "files",
    "pipeline": "pipeline",
    "lake": "lake",
    "audit": "audit",
    "check-types": "consume",
    "consume": "consume",
    "consumers": "consumers",
    "serve": "serve",
    "healthcheck": "serve",
    "keys": "serve",
}


class Commands(click.Group):
    """A group that imports the module of a command when it is used. Lists commands in the order of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name.replace('-', '_')}_command"
        command = getattr(import_module(f".{COMMANDS[cmd_name]}", __package__), name)
        assert isinstance(command, click.Command)
        return command


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        try:
            click.echo(f"fencepost {version('fencepost')}")
        except PackageNotFoundError:
            click.echo("fencepost, from a source tree that is not installed")
        context.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def fencepost() -> None:
    """An event store with Dynamic Consistency Boundaries.

    STORE is the path of an SQLite file, or an address such as postgresql://USER@HOST/DATABASE. Commands
    print tables if the output is a terminal, otherwise one JSON object per line.
    """


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code, one of those in `exits`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape characters that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    print_error = partial(exits.print_error, addresses=_addresses(arguments))
    try:
        # Not click's own `main`, which handles a closed pipe and Ctrl-C differently.
        with fencepost.make_context("fencepost", list(arguments)) as context:
            code = fencepost.invoke(context)
        sys.stdout.flush()  # here, where BrokenPipeError is still handled
        return code if isinstance(code, int) else exits.DONE
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exits.MISUSED
    except click.ClickException as error:
        print_error(exits.usage_line(error))
        return exits.MISUSED
    except (KeyboardInterrupt, click.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output again when it exits, which would print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OUTPUT_CLOSED
    except FencepostError as error:
        print_error(str(error))
        return exits.exit_code(error)
    except Exception:
        click.echo(scrubbed(traceback.format_exc(), _addresses(arguments)), err=True, nl=False)
        print_error("this is a bug in Fencepost; please report it with the lines above")
        return exits.BUG


def _addresses(arguments: Sequence[str]) -> list[str]:
    """Every argument or option value that may be an address, whether or not the command expects one there."""
    texts = [*arguments, *(argument.partition("=")[2] for argument in arguments if argument.startswith("-"))]
    return [text for text in texts if len(text) <= LONGEST_ADDRESS]
