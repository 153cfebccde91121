"""The `fencepost` command.

    app        the commands by name, and how a run of one ends
    exits      exit codes, and errors in one line
    options    what several commands ask for: the store, a query, a range
    events     an event as a line of JSON, in both directions
    output     tables for people, JSON lines for programs
    writing    init, append
    reading    read, tail, head
    statistics stats
    checking   check
    upkeep     verify, backup
    postgres   postgres install
    pipeline   pipeline

A command is a function in a module of its group, named in `app.COMMANDS`. Modules import engines
and rich only when they run, so that `fencepost --help` answers at once. docs/reference/cli.md
describes every command and option, and tests/docs fails when it does not.
"""

from .app import main

__all__ = ["main"]
