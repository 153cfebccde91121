"""docs/reference/outbox.md describes every public name, with what each class offers; the guide runs as one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.consumers.test_reference import ROOT, members
from tests.docs.pages import blocks, page

from fencepost.consumers import outbox

PAGE = page("docs/reference/outbox.md")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
GUIDE = blocks(page("docs/how-to/outbox.md"), "python")
NAMES: dict[str, Any] = {name: getattr(outbox, name) for name in outbox.__all__}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_described_with_what_it_offers(name: str) -> None:
    code = " ".join(re.findall(r"`([^`]+)`", SECTIONS[name]))
    assert SECTIONS[name].strip()
    assert {member for member in members(NAMES[name]) if not re.search(rf"\b{member}\b", code)} == set()


def test_nothing_is_described_that_is_not_there() -> None:
    assert SECTIONS.keys() == NAMES.keys()


def test_the_guide_runs_as_one_program(tmp_path: Path) -> None:
    """Without its example of brokers, whose clients are not installed here; tests/brokers runs it whole."""
    run_guide(tmp_path, [block for block in GUIDE if "KafkaPublisher(" not in block])


def run_guide(folder: Path, blocks: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    code = "\n".join(blocks)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
