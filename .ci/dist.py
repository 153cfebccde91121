"""Build the source distribution and the wheel, and try the wheel where the repository is not.

The wheel is built from the source distribution, so both are complete or this fails. It must hold every file of the
package and the modules beside it. It is then installed into a fresh environment, and smoke.py runs there in an empty
folder: first without extras, then with the small ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# With PYTHONPATH=src the child processes would import the repository instead of the wheel.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT), quiet=True)
    (wheel,) = DIST.glob("*.whl")
    (source,) = DIST.glob("*.tar.gz")
    check_contents(wheel)
    with tempfile.TemporaryDirectory(prefix="fencepost-dist-") as folder:
        environment = Path(folder, "environment")
        empty = Path(folder, "empty")
        empty.mkdir()
        venv.create(environment, with_pip=True)
        for extras in ("", "[server,postgres]"):
            install(environment, f"{wheel}{extras}")
            run(str(environment / "bin/python"), "-I", str(ROOT / ".ci/smoke.py"), extras, cwd=empty)
    print(f"{wheel.relative_to(ROOT)} and {source.relative_to(ROOT)} are built, and the wheel works on its own")


def check_contents(wheel: Path) -> None:
    """Check that the wheel holds every file of the package and every module beside it, and nothing else."""
    source = ROOT / "src"
    files = [path for path in source.joinpath("fencepost").rglob("*") if path.is_file()]
    files += source.glob("*.py")
    wanted = {str(path.relative_to(source)) for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    if wanted != packed:
        raise SystemExit(f"{wheel.name} lacks {sorted(wanted - packed)} and has unexpected {sorted(packed - wanted)}")


def install(environment: Path, requirement: str) -> None:
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run(*pip, "-c", str(ROOT / "constraints.txt"), requirement)


def run(*command: str, cwd: Path = ROOT, quiet: bool = False) -> None:
    silent = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, text=True, **silent)
    if done.returncode:
        raise SystemExit(f"{done.stdout or ''}\nfailed with exit code {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    main()
