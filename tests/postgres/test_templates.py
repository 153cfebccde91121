"""The SQL files: what their templates expand to, and that a released version of the schema does not change."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from fencepost.engines.postgres.install import VERSION, script
from fencepost.engines.postgres.templates import LOCK_CLASS, expand

# The statements of each version, without comments and white space. Plans depend on their text, and stores that were
# installed earlier have it. A change of a statement needs a new version of the schema.
RELEASED = {2: "920b179701de68f13a4580057a862a875fb26ba5dc2214dfd5c7e0eb14c68e0b"}


def digest(text: str) -> str:
    """A hash of the statements, which does not depend on their order, on comments or on white space."""
    without_comments = re.sub(r"--.*$", "", text, flags=re.MULTILINE)
    statements = re.split(r"^(?=CREATE |ALTER |REVOKE |DROP |INSERT )", without_comments, flags=re.MULTILINE)
    words = sorted(" ".join(re.findall(r"\w+|[^\w\s]", statement)) for statement in statements)
    return sha256("\n".join(words).encode()).hexdigest()


def test_the_schema_of_a_released_version_does_not_change() -> None:
    assert digest(script()) == RELEASED[VERSION]


def test_every_template_in_the_schema_is_expanded() -> None:
    assert re.findall(r"^ *--@", script(), re.MULTILINE) == []
    assert re.findall(r"\{[a-z_]+\}", script()) == []


def test_a_block_is_repeated_for_each_value() -> None:
    assert expand("a\n--@ each n: 1; 2\nb{n}\n--@ end\nc\n") == "a\nb1\nb2\nc\n"


def test_a_block_may_have_several_names_and_rows_on_several_lines() -> None:
    text = "--@ each branch | order:\n--@   IF down THEN | DESC;\n--@   ELSE |\n{branch} {order}.\n--@ end\n"
    assert expand(text) == "IF down THEN DESC.\nELSE .\n"


def test_blocks_may_be_nested() -> None:
    text = "--@ each a: x; y\n--@ each n: 1; 2\n{a}{n}\n--@ end\n--@ end\n"
    assert expand(text).split() == ["x1", "x2", "y1", "y2"]


def test_a_row_with_another_number_of_fields_than_names_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        expand("--@ each a | b: 1\n--@ end\n")


def test_constants_are_replaced_and_other_braces_are_kept() -> None:
    assert expand("lock({lock_class}) '{}' [0-9]{1,29}") == f"lock({LOCK_CLASS}) '{{}}' [0-9]{{1,29}}"
