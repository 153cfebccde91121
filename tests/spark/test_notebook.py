"""The notebook runs from its first cell to its last, and is kept without what running it leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "explore.ipynb"


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return found


def test_every_cell_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the notebook looks for the repository, and writes its store.
    place = tmp_path / "elsewhere"
    place.mkdir()
    os.symlink(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(place)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__notebook__"}
    for cell in cells():
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["spark"] is spark or names["spark"].sparkContext is spark.sparkContext
    assert names["balances"].count() == 40
    assert [len(axis.lines) + len(axis.patches) for axis in names["figure"].axes] == [3, 15]
    plt.close("all")


def test_it_is_clean() -> None:
    text = NOTEBOOK.read_text()
    kept = json.loads(text)
    assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
    assert kept["metadata"].keys() == {"kernelspec", "language_info"}
    for cell in kept["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert text == json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "as Jupyter writes it"
