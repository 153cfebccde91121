"""Check that every pin of constraints.txt can be installed on the oldest release of each supported Python.

A pin that needs a newer Python, or has no wheel for another one, breaks `make` on machines with that Python. pip
resolves the pins for another version of Python, without installing anything. Packages that have no wheel at all are
left out: pip would have to build them with the Python that runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ["3.11.0", "3.12.0", "3.13.0"]
WITHOUT_WHEELS = {"pyspark"}


def main() -> int:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    installable = [pin for pin in pins if pin.partition("==")[0].lower() not in WITHOUT_WHEELS]
    with ThreadPoolExecutor() as threads:  # pip mostly waits for the package index
        found = threads.map(lambda version: resolves(installable, version), VERSIONS)
    failed = [version for version, resolved in zip(VERSIONS, found, strict=True) if not resolved]
    for version in VERSIONS:
        print(f"Python {version}: {'FAILED' if version in failed else f'{len(installable)} pins resolve'}", flush=True)
    return 1 if failed else 0


def resolves(pins: list[str], version: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("\n".join(pins))
        options = ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", f"--python-version={version}"]
        command = [sys.executable, "-m", "pip", "install", "-qq", *options, f"--target={folder}", "-r", requirements]
        return subprocess.run(command, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
