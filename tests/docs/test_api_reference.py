"""docs/reference/api.md describes every public name, and nothing that is not there."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import fencepost
from fencepost import aio, model

from .pages import page, sections

SECTIONS = {heading.strip("`"): body for heading, body in sections(page("docs/reference/api.md"), 3).items()}
AWAITABLE = {
    f"fencepost.aio.{name}": getattr(aio, name)
    for name in vars(aio)
    if (name == "open" or name.startswith("Async")) and getattr(aio, name).__module__ == aio.__name__
}
NAMES: dict[str, Any] = {name: getattr(fencepost, name) for name in fencepost.__all__} | AWAITABLE


def members(named: Any) -> set[str]:
    """The public attributes and methods that a class adds to what it inherits from outside."""
    if not inspect.isclass(named):
        return set()
    own = [base for base in named.__mro__ if base.__module__.startswith("fencepost")]
    found = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    if issubclass(named, fencepost.FencepostError):
        # An error's attributes are the names of its arguments.
        found = set(inspect.signature(named.__init__).parameters) - {"self", "args", "kwargs"}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_section(name: str) -> None:
    assert name in SECTIONS
    assert SECTIONS[name].strip()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_class_offers_is_in_its_section(name: str) -> None:
    code = " ".join(re.findall(r"`([^`]+)`", SECTIONS[name]))
    missing = {member for member in members(NAMES[name]) if not re.search(rf"\b{member}\b", code)}
    described_as = re.match(r"\s*As `(\w+)`", SECTIONS[name])
    if described_as:
        missing -= members(NAMES[described_as[1]])
    assert missing == set()


def test_no_name_is_described_that_is_not_there() -> None:
    assert set(SECTIONS) == set(NAMES)


@pytest.mark.parametrize("limit", [name for name in vars(model) if name.startswith("MAX_")])
def test_a_limit_is_described(limit: str) -> None:
    limits = sections(page("docs/reference/api.md"), 2)["Limits"]
    assert re.search(rf"\b{getattr(model, limit):,}(?!,?\d)", limits)


def test_the_tree_of_errors_is_that_of_the_module() -> None:
    drawn = re.findall(r"[├└]── (\w+)", page("docs/reference/api.md"))
    assert drawn == re.findall(r"[├└]── (\w+)", fencepost.errors.__doc__ or "")
