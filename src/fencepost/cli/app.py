"""The commands by name, and how a run of one ends.

To add a command or a group of them, write it in a module of its own and name it in `COMMANDS`,
then describe it in docs/reference/cli.md.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from ..errors import FencepostError
from . import exits

COMMANDS: Final = {
    "init": "writing",
    "append": "writing",
    "read": "reading",
    "tail": "reading",
    "head": "reading",
    "stats": "statistics",
    "check": "checking",
    "verify": "upkeep",
    "backup": "upkeep",
    "postgres": "postgres",
    "demo": "demo",
    "pipeline": "pipeline",
    "lake": "lake",
    "audit": "audit",
}
"""Name of a command or group: the module that has it, under its name followed by `_command`."""


class Commands(click.Group):
    """A group whose commands are imported when they are asked for, and listed as above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f".{COMMANDS[cmd_name]}", __package__), f"{cmd_name}_command")
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
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Which one this is."
)
def fencepost() -> None:
    """An event store with Dynamic Consistency Boundaries.

    STORE is a path, which is an SQLite file, or the address of another engine's store. Commands
    print tables on a terminal and JSON lines elsewhere.
    """


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; `exits` says which there are."""
    try:
        # Not click's own `main`: it would answer a closed pipe and Ctrl-C in its own way.
        with fencepost.make_context("fencepost", list(arguments)) as context:
            code = fencepost.invoke(context)
        sys.stdout.flush()  # here, where a closed pipe can still be answered
        return code if isinstance(code, int) else exits.DONE
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exits.MISUSED
    except click.ClickException as error:
        exits.complain(exits.usage_line(error))
        return exits.MISUSED
    except (KeyboardInterrupt, click.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OUTPUT_CLOSED
    except FencepostError as error:
        exits.complain(str(error))
        return exits.exit_code(error)
    except Exception:
        traceback.print_exc()
        exits.complain("this is a bug in Fencepost; please report it with the lines above")
        return exits.BUG
