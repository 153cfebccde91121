"""The list of torture programs, read from the package's folder."""

from __future__ import annotations

import importlib
from pathlib import Path

NOT_PROGRAMS = {"__init__", "__main__", "programs"}


def program_names() -> list[str]:
    modules = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in modules if name not in NOT_PROGRAMS and not name.startswith("test_"))


def run_program(name: str, seconds: float, seed: int) -> str:
    summary: str = importlib.import_module(f"tests.torture.{name}").run(seconds, seed)
    return summary
