"""The other pages: the map, the format, the decisions, and every link."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fencepost.engines.sqlite import files

from .pages import ROOT, page, sections

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SCHEMA = (ROOT / "src/fencepost/engines/sqlite/schema.sql").read_text()
TABLES = dict(re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", SCHEMA, re.DOTALL))


def columns(body: str) -> list[str]:
    return re.findall(r"^ +([a-z_]+) +(?:INTEGER|TEXT|BLOB|ANY)\b", body, re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (path.parent / target.partition("#")[0]).exists(), target


def links(path: Path) -> set[Path]:
    """The pages that a page links to; a folder stands for its README."""
    targets = (target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", path.read_text()))
    found = ((path.parent / target).resolve() for target in targets if target and "://" not in target)
    return {target / "README.md" if target.is_dir() else target for target in found}


def test_every_page_can_be_reached_from_the_start_page() -> None:
    reached, new = set(), {ROOT / "docs/README.md"}
    while new:
        reached |= new
        new = {target for path in new for target in links(path) if target in PAGES} - reached
    assert [str(path.relative_to(ROOT)) for path in PAGES if path not in reached and "site" not in path.parts] == []


def test_every_decision_is_in_the_index_with_its_title() -> None:
    index = page("docs/decisions/README.md")
    for path in (ROOT / "docs/decisions").glob("0*.md"):
        number, title = path.read_text().splitlines()[0].removeprefix("# ").split(": ", 1)
        assert f"- [{number}]({path.name}): {title}\n" in index


def test_no_page_imports_all_names_of_a_module() -> None:
    """Readers copy code, and type checkers and people should see where each name comes from."""
    assert [
        str(path.relative_to(ROOT))
        for path in PAGES
        if re.search(r"^from .* import \*", path.read_text(), re.MULTILINE)
    ] == []


def test_no_page_says_to_install_from_a_registry() -> None:
    """No registry has the package. Only the page on installing may mention one, to say so."""
    for path in PAGES:
        if path != ROOT / "docs/how-to/install.md":
            assert not re.search(r"pip install [^&|\n]*\bfencepost\b(?!-\d)", path.read_text()), path


def test_the_map_has_every_module_and_engine() -> None:
    """Those of the contracts on imports, which are complete: a module outside of them would be unchecked."""
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = [name for contract in contracts for layer in contract.get("layers", ()) for name in layer.split(" | ")]
    engines = [name for contract in contracts for name in contract.get("modules", ())]
    assert "fencepost.cli" in layers
    assert "fencepost.engines.sqlite" in engines
    text = page("docs/architecture.md")
    for name in {*layers, *engines} - {"fencepost.engines"}:
        assert f"](../src/{name.replace('.', '/')}" in text, name


def test_the_map_has_every_module_of_the_sqlite_engine() -> None:
    text = page("docs/architecture.md")
    for path in (ROOT / "src/fencepost/engines/sqlite").glob("[a-z]*.py"):
        assert f"](../{path.relative_to(ROOT)})" in text, path.name


def test_there_are_five_walks_of_at_most_eight_steps_through_modules() -> None:
    walks = sections(sections(page("docs/architecture.md"), 2)["Five walks"], 3)
    assert len(walks) == 5
    for walk in walks.values():
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", walk, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert 4 <= len(numbers) <= 8
        assert "](../src/fencepost/" in walk


def test_the_format_has_tables() -> None:
    assert {"events", "postings", "records"} <= TABLES.keys()
    assert columns(TABLES["events"])[:2] == ["position", "type"]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_the_format_is_described_with_its_columns(table: str) -> None:
    section = sections(page("docs/reference/sqlite-format.md"), 2)[f"`{table}`"]
    for column in columns(TABLES[table]):
        assert f"`{column}`" in section


def test_the_number_of_the_format_is_the_one_described() -> None:
    text = page("docs/reference/sqlite-format.md")
    assert f"This page describes format {files.FORMAT}." in text
    assert f"0x{files.APPLICATION:08X}" in text


@pytest.mark.parametrize("path", sorted((ROOT / "docs/decisions").glob("0*.md")), ids=lambda path: path.stem)
def test_a_decision_says_what_it_has_to_say(path: Path) -> None:
    assert path.read_text().startswith(f"# {path.stem[:3]}: ")
    context, choice, reason, doubt = sections(path.read_text(), 2)
    assert (context, choice, doubt) == ("Context", "Choice", "What would change our mind")
    assert reason in {"Measured", "Reason"}
