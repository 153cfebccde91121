"""The report on PySpark's pushed filters: its program still shows the bug, so `pushFilters` stays off by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.spark.slow.conftest import Driver

pytestmark = pytest.mark.timeout(900)  # a JVM starts, which takes long on a busy machine

REPORT = Path(__file__).parents[3] / "docs" / "explanation" / "pyspark-filters.md"


def test_the_program_of_the_report_prints_what_the_report_says(tmp_path: Path) -> None:
    text = REPORT.read_text()
    (program,) = re.findall(r"^```python\n# pushed_filters\.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert "fencepost" not in program
    done = Driver(tmp_path, program, cwd=tmp_path).result()
    assert done.returncode == 0, done.stderr[-3_000:]
    printed = done.stdout.splitlines()
    assert printed == ["20 20", "10", "40"], "PySpark has changed: see docs/decisions/050"
    for number in (word for line in printed for word in line.split()):
        assert f"`{number}`" in text or f"| {number} |" in text
