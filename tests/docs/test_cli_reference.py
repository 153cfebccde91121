"""docs/reference/cli.md describes every command and option, and nothing that is not there."""

from __future__ import annotations

import re

import click
import pytest

from fencepost.cli import exits
from fencepost.cli.app import COMMANDS, fencepost

from .pages import page, sections

TEXT = page("docs/reference/cli.md")
SECTIONS = sections(TEXT, 2)
SHARED = sections(TEXT, 2)["Queries"]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command by its words, those of groups within groups too."""
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= commands(command, (*path, name))
        else:
            found[" ".join((*path, name))] = command
    return found


ALL = commands(fencepost)


def options(command: click.Command) -> set[str]:
    """Its options in every spelling, without --help."""
    return {
        spelling
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }


def documented(section: str) -> set[str]:
    """The options in the first column of the section's tables."""
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `-")]
    return {spelling for cell in cells for spelling in re.findall(r"`(--?[a-z-]+)", cell)}


def test_there_are_commands() -> None:
    assert set(COMMANDS) <= set(ALL) | {name.split()[0] for name in ALL}
    assert "read" in ALL


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_a_section_that_shows_how_it_is_called(name: str) -> None:
    assert f"`{name}`" in SECTIONS
    arguments = [
        parameter.human_readable_name.upper() for parameter in ALL[name].params if isinstance(parameter, click.Argument)
    ]
    assert f"`fencepost {' '.join([name, *arguments])}`" in SECTIONS[f"`{name}`"]


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_just_the_options_that_are_described(name: str) -> None:
    assert documented(SECTIONS[f"`{name}`"]) == options(ALL[name])


def test_the_options_of_queries_are_described() -> None:
    assert documented(SHARED) == {"--type", "--tag", "--query"}


def test_the_options_of_the_command_itself_are_described() -> None:
    for option in (*options(fencepost), "--help", "-h"):
        assert f"`{option}`" in SECTIONS["`fencepost`"]


def test_no_command_is_described_that_is_not_there() -> None:
    described = {heading.strip("`") for heading in SECTIONS if heading.startswith("`")}
    assert described == {*ALL, "fencepost"}


def test_the_exit_codes_are_described() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", SECTIONS["Exit codes"], re.MULTILINE)}
    assert described == codes
