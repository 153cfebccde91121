"""The notebooks run from their first cell to their last, and are kept without what running them leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the cells of the notebook leave, run in the folder."""
    monkeypatch.chdir(folder)  # where the notebook writes its store
    (notebook,) = [path for path in NOTEBOOKS if path.stem == name]
    names: dict[str, Any] = {"__name__": "__notebook__"}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


def test_every_cell_of_explore_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = run("explore", tmp_path, monkeypatch)
    assert names["spark"] is spark or names["spark"].sparkContext is spark.sparkContext
    assert names["balances"].count() == 40
    assert [len(axis.lines) + len(axis.patches) for axis in names["figure"].axes] == [3, 15]
    plt.close("all")


def test_every_cell_of_tables_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("tables", tmp_path, monkeypatch)
    (row,) = names["unfit"].collect()
    assert (row["position"], row["unreadable"]) == (621, '{"amount": "much"}')
    changes = {row["wallet_id"]: (row["before"], row["after"]) for row in names["changes"].collect()}
    assert changes.keys() == {"w01", "w99"}
    assert changes["w99"] == (None, 5)
    assert changes["w01"][1] - changes["w01"][0] == 250


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_clean(notebook: Path) -> None:
    text = notebook.read_text()
    kept = json.loads(text)
    assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
    assert kept["metadata"].keys() == {"kernelspec", "language_info"}
    for cell in kept["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert text == json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "as Jupyter writes it"
