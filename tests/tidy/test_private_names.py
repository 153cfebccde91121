"""A module uses a private name, `_name`, only if the module itself defines it.

A private name may change without notice, so a module that reads another module's private name breaks when that
module is tidied up. What a class and its subclasses share is private to both: `self`, `cls` and `super()` may be
asked for any name.
"""

from __future__ import annotations

import ast

import pytest

from .sources import broken, modules, tree

# Private by their spelling only: the standard library documents them.
DOCUMENTED = {"_getframe", "_current_frames", "_replace", "_asdict", "_fields", "_make"}


def test_a_module_uses_no_private_name_of_another_module() -> None:
    found = broken(lambda name: reached_into(tree(name)), modules())
    assert found == {}, "make the name public, or move the code to the module that owns it"


def reached_into(module: ast.Module) -> list[str]:
    own = defined(module) | DOCUMENTED
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own and not inherits(node.value):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom):
            found += [f"line {node.lineno}: import of {alias.name}" for alias in node.names if private(alias.name)]
    return found


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def inherits(receiver: ast.expr) -> bool:
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name):
        return receiver.func.id == "super"
    return isinstance(receiver, ast.Name) and receiver.id in ("self", "cls")


def defined(module: ast.Module) -> set[str]:
    """The functions, classes, variables and attributes that the module defines."""
    names = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and inherits(node.value):
            names.add(node.attr)
    return names


@pytest.mark.parametrize(
    "text",
    [
        "store._engine.commit()",
        "store._engine = None",
        "from .leading import _Queue",
        "class A:\n    def f(self, other):\n        self._x = 1\n        return other._y",
    ],
)
def test_the_rule_finds_what_it_forbids(text: str) -> None:
    assert reached_into(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def __eq__(self, other):\n        self._x = 1\n        return other._x == self._y",
        "class A(B):\n    def f(self):\n        return super()._f()",
        "sys._getframe(1)",
        "parts._replace(path='')",
    ],
)
def test_the_rule_allows(text: str) -> None:
    assert reached_into(ast.parse(text)) == []
