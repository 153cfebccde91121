"""The `fencepost` command.

`app.COMMANDS` names the module of each command. The commands share:

    app            the table of commands; runs one command line
    options        arguments and options that several commands take, and the Spark session of a command
    output         tables on a terminal, JSON lines elsewhere
    exits          exit codes and error messages

To add a command, write a function in the module of its group, add its name to `app.COMMANDS`, and describe it in
docs/reference/cli.md; tests/docs fails for an undocumented command or option. Modules import engines and rich
inside functions, so that `fencepost --help` starts quickly.
"""

from .app import main

__all__ = ["main"]
