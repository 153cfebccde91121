"""What docs/how-to/spark.md shows, from top to bottom, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.spark.slow.conftest import environment

from fencepost.spark.options import READING, WRITING

DOCS = Path(__file__).parents[3] / "docs"


def test_the_guide_runs(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "spark.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "|  MoneyAdded|    1|" in done.stdout


def test_every_option_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "spark.md").read_text()
    for name in (*READING, *WRITING):
        assert f"`{name}`" in text, name
