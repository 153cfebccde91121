"""Every module has a docstring, and no docstring is longer than the code that it describes.

A function that needs more lines to describe than to write wants a better name, or its explanation belongs to the
module. Docstrings of at most five lines are always allowed: a short function may have a contract worth a paragraph.
The rule is not about a protocol's methods, which are contracts without code, nor about packages (`__init__.py`).
"""

from __future__ import annotations

import ast
import re

from .sources import broken, modules, text, tree

ALWAYS_ALLOWED = 5
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_a_module_has_a_docstring() -> None:
    found = broken(lambda name: not ast.get_docstring(tree(name)), modules())
    assert found == {}, "say in 3 to 10 lines what the idea of the module is"


def test_no_docstring_is_longer_than_its_code() -> None:
    found = broken(lambda name: wordy(text(name)), [name for name in modules() if not name.endswith("__init__.py")])
    assert found == {}, "shorten the docstring, or move it to the module or to docs/"


def wordy(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)) and not only_declared(node):
            lines = prose_lines(docstring)
            code = code_lines(node, source)
            if lines > max(ALWAYS_ALLOWED, code):
                found.append(f"{getattr(node, 'name', 'module')}: {lines} lines of docstring for {code} of code")
    return found


def prose_lines(docstring: str) -> int:
    """How many lines the docstring has, without examples that run as tests: `>>>` up to the next empty line."""
    return len(re.sub(r"^ *>>> .*?(?:^\s*$|\Z)", "", docstring, flags=re.MULTILINE | re.DOTALL).strip().splitlines())


def code_lines(node: Documented, source: str) -> int:
    """How many lines of the node, its signature included, hold code: no docstrings, comments or blank lines."""
    described = {
        line
        for inner in ast.walk(node)
        if isinstance(inner, Documented) and ast.get_docstring(inner)
        for line in range(inner.body[0].lineno, (inner.body[0].end_lineno or 0) + 1)
    }
    lines = source.splitlines()
    first, last = (1, len(lines)) if isinstance(node, ast.Module) else (node.lineno, node.end_lineno or 0)
    within = {number for number in range(first, last + 1) if lines[number - 1].strip(" )]}:,")}
    return sum(not lines[number - 1].lstrip().startswith("#") for number in within - described)


def only_declared(node: Documented) -> bool:
    """Whether the body is empty, `...` or `raise NotImplementedError`: a contract without code."""
    return all(
        (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and each.value.value is ...)
        or (isinstance(each, ast.Raise) and "NotImplementedError" in ast.unparse(each))
        for each in node.body[1:]
    )


LONG = "\n".join(f"    line {number}" for number in range(6))


def test_the_rule_finds_a_docstring_that_is_longer_than_the_code() -> None:
    assert wordy(f'def f():\n    """{LONG}"""\n    return 1')
    assert wordy(f'def f():\n    """{LONG}"""\n    # why\n\n\n\n\n    return 1')
    assert wordy(f'"""{LONG}"""\nx = 1')


def test_the_rule_allows_a_short_docstring_a_contract_and_a_long_function() -> None:
    assert not wordy('def f():\n    """One\n\n    two\n    three"""\n    return 1')
    assert not wordy(f'def f():\n    """{LONG}"""\n    ...')
    assert not wordy('def f():\n    """One\n\n    >>> f()\n    1\n    >>> f()\n    1\n    """\n    return 1')
    body = "\n".join(f"    x = {number}" for number in range(8))
    assert not wordy(f'def f():\n    """{LONG}"""\n{body}')
