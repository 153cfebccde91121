"""The repetitions in the SQL files, expanded: one index for each of four tags, one query for each direction.

PostgreSQL plans a query well only if its order and its bounds are constants in the text. So the queries for both
directions, and for each of the tag indexes, must be spelled out, and differ in a few words. The files contain them
once:

    --@ each n: 1; 2; 3; 4                 repeats the lines up to its `--@ end` for each value of n
    --@ each branch | order:               likewise with two names. A header that ends with `:` or `;` continues on the
    --@   IF backwards THEN | DESC;        next line. Rows are separated by `;`, fields by `|`.
    --@   ELSE |

In those lines, `{n}` stands for the value. Blocks can be nested. `CONSTANTS` are replaced everywhere.
tests/postgres/test_templates.py holds the expansion to the text that version 2 was released with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

LOCK_CLASS: Final = 1179537987  # the first key of every advisory lock of Fencepost: "FNRC" in ASCII
CONSTANTS: Final = {
    "lock_class": str(LOCK_CLASS),
    "maximum": str(2**63 - 1),
    # One generic plan must suit every tag and every size of the log, so plans that depend on statistics are excluded.
    "settings": "SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan"
    " SET enable_seqscan = off SET enable_bitmapscan = off",
}

EACH: Final = "--@ each "
END: Final = "--@ end"


def expand(text: str) -> str:
    """The text with every block repeated and every constant replaced."""
    lines = iter(text.splitlines(keepends=True))
    return _replace("".join(_expand(lines)), CONSTANTS)


def _expand(lines: Iterator[str]) -> Iterator[str]:
    """The lines up to the end of the block that they are in."""
    for line in lines:
        directive = line.strip()
        if directive == END:
            return
        if directive.startswith(EACH):
            rows = _rows(directive, lines)
            body = "".join(_expand(lines))
            for row in rows:
                yield _replace(body, row)
        else:
            yield line


def _rows(directive: str, lines: Iterator[str]) -> list[dict[str, str]]:
    header = directive.removeprefix(EACH)
    while header.endswith((":", ";")):
        header += next(lines).strip().removeprefix("--@")
    names, _, rows = header.partition(":")
    return [dict(zip(_fields(names), _fields(row), strict=True)) for row in rows.split(";")]


def _fields(text: str) -> list[str]:
    return [field.strip() for field in text.split("|")]


def _replace(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
