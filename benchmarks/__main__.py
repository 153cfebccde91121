"""`make bench`: measure, then write docs/benchmarks.md from what was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .report import write

RESULTS = Path("benchmarks/results")


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    for name in ("embedded", "growth"):
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--results", RESULTS / f"{name}.json", *sys.argv[1:]],
            check=True,
        )
    write(RESULTS, Path("docs"))


if __name__ == "__main__":
    main()
