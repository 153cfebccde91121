"""Runs mypy and pyright on the samples and on the tutorial, and compares what they say with the marks.

The tutorial has no marks: its code must pass as it stands, in strict mode of mypy and in standard mode of pyright.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SAMPLES: Final = Path(__file__).parent / "samples"
TUTORIAL: Final = ROOT / "docs/tutorial.md"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Finding(NamedTuple):
    """An error at a line of a sample, by its code; `message` is for the report."""

    file: str
    line: int
    code: str
    message: str = ""


def write_tutorial(folder: Path) -> Path:
    """Write the code of the tutorial into one file, as a reader of the page does."""
    file = folder / "tutorial.py"
    file.write_text("".join(BLOCK.findall(TUTORIAL.read_text())))
    return file


def mypy() -> Iterator[Finding]:
    """What mypy --strict finds."""
    command = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", "--output", "json", str(SAMPLES)]
    with TemporaryDirectory() as folder:
        command.append(str(write_tutorial(Path(folder))))
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"mypy failed: {done.stdout}{done.stderr}")
    for line in done.stdout.splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            yield Finding(Path(found["file"]).name, found["line"], found["code"], found["message"])


def pyright() -> Iterator[Finding]:
    """What pyright finds: in strict mode in the samples, in its standard mode in the tutorial."""
    # Its version is pinned, so it need not look for a newer one.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    with TemporaryDirectory() as folder:
        write_tutorial(Path(folder))
        copytree(SAMPLES, Path(folder) / SAMPLES.name, ignore=ignore_patterns("__pycache__"))
        settings = Path(folder) / "pyrightconfig.json"
        options = {"strict": [SAMPLES.name], "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
        settings.write_text(json.dumps(options))
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(settings)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"pyright failed: {done.stdout}{done.stderr}") from None
    expected = len(list(SAMPLES.glob("*.py"))) + 1
    if report["summary"]["filesAnalyzed"] != expected:
        raise RuntimeError(f"pyright has checked {report['summary']['filesAnalyzed']} files instead of {expected}")
    for found in report["generalDiagnostics"]:
        if found["severity"] == "error":
            line = found["range"]["start"]["line"] + 1
            yield Finding(Path(found["file"]).name, line, found.get("rule", "syntax"), found["message"])


CHECKERS: Final[dict[str, Callable[[], Iterator[Finding]]]] = {"mypy": mypy, "pyright": pyright}


def marks(checker: str) -> Iterator[Finding]:
    """The errors that the samples say the checker must find."""
    for sample in sorted(SAMPLES.glob("*.py")):
        for number, line in enumerate(sample.read_text().splitlines(), start=1):
            _, wrong, mark = line.partition("# wrong: ")
            for codes in re.findall(rf"\b{checker}\[([\w, -]+)\]", mark):
                for code in codes.split(", "):
                    yield Finding(sample.name, number, code)
            if wrong and f"{checker}[" not in mark:
                raise ValueError(f"{sample.name}:{number} does not say what {checker} must find")


def differences(checker: str) -> list[str]:
    """Where the checker and the marks disagree."""
    expected = {mark[:3] for mark in marks(checker)}
    found = {finding[:3]: finding.message for finding in CHECKERS[checker]()}
    return [
        *(f"{file}:{line}: {checker} does not find [{code}]" for file, line, code in sorted(expected - found.keys())),
        *(
            f"{file}:{line}: {checker} finds [{code}], which is not marked: {found[file, line, code]}"
            for file, line, code in sorted(found.keys() - expected)
        ),
    ]
