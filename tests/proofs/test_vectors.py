"""The Python code gives the answers that the proven definitions give, for every committed case.

The answers were written by the oracle (see vectors.py), so no Coq is needed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.engines.memory import MemoryEngine
from fencepost.engines.sqlite import SqliteEngine

from . import subject
from .vectors import DIRECTORY


def vectors(kind: str) -> list[Any]:
    lines = (DIRECTORY / f"{kind}.jsonl").read_text(encoding="ascii").splitlines()
    return [pytest.param(json.loads(line), id=f"{kind}-{number}") for number, line in enumerate(lines, start=1)]


@pytest.mark.parametrize("vector", vectors("kernel"))
def test_the_kernel_answers_as_proven(vector: Any) -> None:
    event, query = vector.pop("event"), vector.pop("query")
    assert subject.kernel(event, query) == vector


@pytest.mark.parametrize("vector", vectors("up_to"))
def test_subsets_up_to_a_size_are_those_of_the_theorem(vector: Any) -> None:
    up_to, event = vector.pop("up_to"), vector.pop("event")
    assert subject.up_to(up_to, event) == vector


@pytest.mark.parametrize("vector", vectors("batch"))
def test_a_batch_gets_the_proven_verdicts(vector: Any) -> None:
    log, appends = vector.pop("log"), vector.pop("appends")
    assert subject.batch(MemoryEngine(), log, appends) == vector


# Each takes a file of its own and a few syncs, so not all of them.
@pytest.mark.parametrize("vector", vectors("batch")[::8])
def test_the_default_engine_gives_the_proven_verdicts(vector: Any, tmp_path: Path) -> None:
    log, appends = vector.pop("log"), vector.pop("appends")
    engine = SqliteEngine(str(tmp_path / "store.db"))
    try:
        assert subject.batch(engine, log, appends) == vector
    finally:
        engine.close()


def test_the_vectors_hold_every_verdict_and_both_answers() -> None:
    """Vectors without conflicts, or without matches, would pass for the wrong reason."""
    verdicts = [verdict for vector in vectors("batch") for verdict in vector.values[0]["verdicts"]]
    kinds = [(kind, *(rest[2:] if kind == "placed" else ())) for kind, *rest in verdicts]
    for kind in [("placed", False), ("placed", True), ("conflicting",), ("overlapping",), ("behind",)]:
        assert kinds.count(kind) >= 20, kind
    answers = [vector.values[0]["matches"] for vector in vectors("kernel")]
    assert answers.count(True) >= 50
    assert answers.count(False) >= 50
