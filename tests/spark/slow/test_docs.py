"""What the pages on Spark show, from top to bottom, as one program each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.spark.slow.conftest import Driver

from fencepost.spark.basics.options import READING, WRITING

pytestmark = pytest.mark.timeout(900)  # a JVM starts, which takes long on a busy machine

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("page", "needed"), [("spark", ()), ("read-lakes-and-views", ("duckdb", "polars"))])
def test_the_guide_runs(tmp_path: Path, page: str, needed: tuple[str, ...]) -> None:
    for module in needed:
        pytest.importorskip(module)
    text = (DOCS / "how-to" / f"{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    # A block that begins with a file's name is that file; all others are one program.
    files = {found[1]: block for block in blocks if (found := re.match(r"# (\w+\.py)\n", block))}
    for name, block in files.items():
        (tmp_path / name).write_text(block)
    # Libraries that must not share a process, as the page says, have programs of their own.
    alone = [block for block in blocks if any(f"import {module}\n" in block for module in needed)]
    assert len(alone) == len(needed)
    program = "\n".join(block for block in blocks if block not in (*files.values(), *alone))
    for each in (program, *alone):
        done = Driver(tmp_path, each, cwd=tmp_path).result()
        assert done.returncode == 0, done.stderr[-3_000:]
        assert page != "spark" or "|  MoneyAdded|    1|" in done.stdout


def test_every_option_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "spark.md").read_text()
    for name in (*READING, *WRITING):
        assert f"`{name}`" in text, name
