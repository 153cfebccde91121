"""Only `fencepost.core.address` decides which kind of store an address names; other modules ask for `Address.kind`."""

from __future__ import annotations

import ast

import pytest

from fencepost.core.address import KINDS
from fencepost.server.remote import REMOTE
from fencepost.spark.lake_kind import LAKE

from .sources import broken, modules, tree

# These parse addresses, and print them without their secrets.
EXEMPT = {"core/address.py", "core/redaction.py"}
SCHEMES = {scheme for kind in (*KINDS, LAKE, REMOTE) for scheme in kind.schemes}
# These words alone are also names of options, commands and protocols; a scheme with its colon is always an address.
PREFIXES = (SCHEMES - {"memory", "lake", "http", "https"}) | {
    f"{scheme}{end}" for scheme in SCHEMES for end in (":", "://")
}


def test_a_module_does_not_compare_the_prefix_of_an_address() -> None:
    found = broken(lambda name: comparisons(tree(name)), [name for name in modules() if name not in EXEMPT])
    assert found == {}, "use Address.parse(...).kind"


def comparisons(module: ast.AST) -> list[str]:
    """Where a scheme is compared: by an operator, by `in`, by `match`, by startswith or removeprefix."""
    found = []
    for node in ast.walk(module):
        compared: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "removeprefix", "partition"):
                compared = list(node.args)
        elif isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        for expression in compared:
            constants = [each for each in ast.walk(expression) if isinstance(each, ast.Constant)]
            found += [f"line {each.lineno}: {each.value!r}" for each in constants if each.value in PREFIXES]
    return found


@pytest.mark.parametrize(
    "text",
    [
        'a.startswith("fdb:")',
        'a.startswith(("postgres://", "postgresql://"))',
        'a == "memory:"',
        'a.split(":")[0] == "fdb"',
        'a.removeprefix("sqlite:")',
        's in ("lake:",)',
        'match s:\n    case "postgresql": pass',
    ],
)
def test_the_rule_finds_what_it_forbids(text: str) -> None:
    assert comparisons(ast.parse(text))


@pytest.mark.parametrize("text", ['a.startswith("file:")', 'open("memory:")', 'name == "lake"'])
def test_the_rule_allows(text: str) -> None:
    assert comparisons(ast.parse(text)) == []
