"""What the documents say about proofs and models is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "proofs"
MODELS = ROOT / "models"
SOURCES = "".join(path.read_text() for path in PROOFS.glob("*.v"))


def first_cells(path: Path) -> list[str]:
    """The names in the first column of each table."""
    rows = re.findall(r"^\| (.*?) \|", path.read_text(), re.MULTILINE)
    return [name for cell in rows for name in re.findall(r"`([\w-]+)`", cell)]


def statements() -> set[str]:
    return set(re.findall(r"^(?:Theorem|Corollary|Lemma) (\w+)", SOURCES, re.MULTILINE))


def test_every_theorem_that_the_readme_names_is_stated_and_rests_on_nothing() -> None:
    checked = re.findall(r"^Print Assumptions (\w+)\.", (PROOFS / "Assumptions.v").read_text(), re.MULTILINE)
    assert len(checked) > 20
    assert sorted(first_cells(PROOFS / "README.md")) == sorted(checked)
    assert set(checked) <= statements()


def test_nothing_is_admitted() -> None:
    code = re.sub(r"\(\*.*?\*\)", "", SOURCES, flags=re.DOTALL)
    assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Conjecture|Hypothesis|Variable)\b", code)


def test_the_page_names_only_theorems_that_are_stated() -> None:
    page = (ROOT / "docs/explanation/correctness.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page))
    assert len(named) >= 6
    assert named <= statements()


def test_the_models_readme_names_every_property_and_every_planted_bug() -> None:
    named = set(first_cells(MODELS / "README.md"))
    configured = "".join(path.read_text() for path in MODELS.glob("*.cfg"))
    properties = {
        name
        for line in re.findall(r"^(?:INVARIANTS|PROPERTIES) (.*)", configured, re.MULTILINE)
        for name in line.split()
    }
    assert properties <= named
    assert {path.stem for path in (MODELS / "bugs").glob("*.cfg")} <= named


def test_the_withdrawal_of_the_page_is_refused_when_another_one_came_first() -> None:
    (withdraw,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/explanation/correctness.md").read_text(), re.MULTILINE | re.DOTALL
    )
    with fencepost.open("memory:") as store:

        def total(reading: Any) -> int:
            """Ada's other request is decided between this reading and its append."""
            assert list(reading) == []
            store.append([Event("Withdrawn", data=b"80", tags={"wallet:w1"})])
            return 100

        with pytest.raises(ConditionFailed):
            exec(
                withdraw,
                {"store": store, "total": total, "Query": Query, "Event": Event, "AppendCondition": AppendCondition},
            )
        assert store.head() == 1
