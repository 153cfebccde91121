"""docs/reference/testing.md describes every public name of fencepost.testing."""

from __future__ import annotations

import pytest

from fencepost import testing

from .pages import page


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_is_on_the_page(name: str) -> None:
    assert f"`{name}" in page("docs/reference/testing.md")
