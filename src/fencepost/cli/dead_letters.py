"""The group `consumers dead-letters`: events that a consumer has set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .escaping import printable
from .options import POSITION, by_option, json_option, name_argument, open_store, store_argument
from .output import Output

if TYPE_CHECKING:
    from ..consumers import DeadLetter


@click.group("dead-letters")
def dead_letters_command() -> None:
    """Show, replay and discard events that a consumer has set aside."""


@dead_letters_command.command("list")
@store_argument
@name_argument
@json_option
def list_command(store: str, name: str, as_json: bool | None) -> None:
    """List the dead letters of the consumer NAME."""
    from ..consumers import dead_letters

    output = Output(as_json)
    with open_store(store) as opened:
        found = dead_letters(opened, name)
    for letter in found:
        output.result(letter, _line(letter))
    if not found and not output.json:
        output.console.print(f"{printable(name)} has no dead letters.")


def _line(letter: DeadLetter) -> str:
    state = ", to be replayed" if letter.replay else ""
    return f"{letter.position}  {letter.type}  {letter.attempts} attempts  {letter.error}{state}"


@dead_letters_command.command("show")
@store_argument
@name_argument
@click.argument("position", type=POSITION)
@json_option
def show_command(store: str, name: str, position: int, as_json: bool | None) -> None:
    """Show the dead letter at POSITION: the error, then the event."""
    from ..consumers import CommandRefused, dead_letters

    output = Output(as_json)
    with open_store(store) as opened:
        letters = {letter.position: letter for letter in dead_letters(opened, name)}
        if position not in letters:
            raise CommandRefused(f"consumer {name!r} has no dead letter at position {position}")
        output.result(letters[position], _line(letters[position]))
        output.events(list(opened.read(after=position - 1, upto=position)))


@dead_letters_command.command("replay")
@store_argument
@name_argument
@click.argument("positions", type=POSITION, nargs=-1)
@by_option
@json_option
def replay_command(store: str, name: str, positions: tuple[int, ...], by: str | None, as_json: bool | None) -> None:
    """Have NAME handle the dead letters at POSITIONS again, or all of them."""
    from ..consumers import replay

    with open_store(store) as opened:
        count = replay(opened, name, positions, by=by)
    Output(as_json).result({"consumer": name, "requested": count}, f"{count} will be replayed.")


@dead_letters_command.command("discard")
@store_argument
@name_argument
@click.argument("positions", type=POSITION, nargs=-1)
@click.option("--all", "every", is_flag=True, help="Discard every dead letter of the consumer.")
@by_option
@json_option
def discard_command(
    store: str, name: str, positions: tuple[int, ...], every: bool, by: str | None, as_json: bool | None
) -> None:
    """Drop the dead letters at POSITIONS without handling them."""
    from ..consumers import discard

    if bool(positions) == every:
        raise click.UsageError("give positions, or --all")
    with open_store(store) as opened:
        count = discard(opened, name, positions, by=by)
    Output(as_json).result({"consumer": name, "discarded": count}, f"{count} discarded.")
