"""The guide of the outbox runs as one program, with its example of brokers."""

from __future__ import annotations

from pathlib import Path

from tests.consumers.outbox.test_reference import GUIDE, run_guide


def test_the_whole_guide_runs_as_one_program(tmp_path: Path) -> None:
    run_guide(tmp_path, GUIDE)
