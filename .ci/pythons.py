"""Run the core suites on every supported Python that is at hand.

For each version of `--versions` an interpreter is looked for: `pythonX.Y` on the path, or the newest one
that pyenv has. Each gets an environment of its own, `.venv-X.Y`, which is renewed when pyproject.toml or
constraints.txt are newer. A version without an interpreter is named and passed over; if there is none at
all, or a suite fails, the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ["3.11", "3.12", "3.13"]
SUITES = ["unit", "contract", "decisions", "sqlite", "postgres", "foundationdb", "races", "cli", "docs", "examples"]
EXTRAS = "postgres,foundationdb,server,spark,lake,dev"  # PySpark supports each of these versions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="X.Y")
    parser.add_argument("suites", nargs="*", default=[f"tests/{name}" for name in SUITES])
    options = parser.parse_args()
    found = {version: interpreter(version) for version in options.versions}
    passed = {version: tested(version, python, options.suites) for version, python in found.items() if python}
    for version, python in found.items():
        verdict = "passed" if passed.get(version) else "FAILED" if python else "no interpreter found"
        print(f"Python {version}: {verdict}", flush=True)
    return 0 if passed and all(passed.values()) else 1


def interpreter(version: str) -> Path | None:
    """One that runs: a shim of pyenv may be on the path for a version that is not selected."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(home.glob(f"versions/{version}.*/bin/python"), key=_numbers, reverse=True)
    on_path = shutil.which(f"python{version}")
    for candidate in [*([Path(on_path)] if on_path else []), *installed]:
        asked = subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True)
        if asked.returncode == 0:
            return candidate
    return None


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]


def tested(version: str, python: Path, suites: list[str]) -> bool:
    environment = ROOT / f".venv-{version}"
    print(f"Python {version}: {python}, in {environment.name}", flush=True)
    prepare(environment, python)
    command = [environment / "bin/python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *suites]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def prepare(environment: Path, python: Path) -> None:
    stamp = environment / "ready"
    sources = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if stamp.exists() and all(stamp.stat().st_mtime >= source.stat().st_mtime for source in sources):
        return
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip = [environment / "bin/python", "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "-e", f"{ROOT}[{EXTRAS}]"], check=True)
    stamp.touch()


if __name__ == "__main__":
    sys.exit(main())
