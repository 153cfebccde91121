"""docs/explanation/correctness.md lists every copy of matching with its module and the test that compares it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import ROOT, page

PAGE = ROOT / "docs/explanation/correctness.md"
ROWS = re.findall(
    r"^\| (?!copy|-)(.*?) \| (.*?) \| .* \| (.*?) \|$", page("docs/explanation/correctness.md"), re.MULTILINE
)
TESTS = sorted({link for _, _, tests in ROWS for link in re.findall(r"\]\((.*?)\)", tests) if "proofs" not in link})


def linked(link: str) -> Path:
    return (PAGE.parent / link).resolve()


def test_the_table_is_found() -> None:
    assert len(ROWS) >= 14


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_copy_is_listed_with_a_module_and_a_test_that_exist(row: tuple[str, str, str]) -> None:
    _, module, tests = row
    links = re.findall(r"\]\((.*?)\)", module + tests)
    assert len(links) >= 2
    assert [link for link in links if not linked(link).is_file()] == []


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.removeprefix("../../tests/"))
def test_the_test_of_a_copy_compares_it_with_the_definition_on_generated_cases(test: str) -> None:
    text = linked(test).read_text()
    assert re.search(r"^from fencepost\.buckets import .*\bmatches\b", text, re.MULTILINE)
    assert "strategies" in text or "random_query" in text


def test_every_module_that_uses_the_kernels_keys_is_listed() -> None:
    """Keys are a cover: code that uses them must also apply the rule, which a test of its own has to show."""
    listed = {linked(link) for _, module, _ in ROWS for link in re.findall(r"\]\((.*?)\)", module)}
    source = ROOT / "src/fencepost"
    users = {
        path
        for path in source.rglob("*.py")
        if re.search(r"^from \.+buckets import .*(_buckets|_targets|_keys)\b", path.read_text(), re.MULTILINE)
    }
    # The keys of PostgreSQL's wire form only tell whether a batch may conflict with itself; SQL then decides.
    assert users - listed == {source / "engines/postgres/wire.py"}
