"""What another program does to a store's file, in a process of its own.

`outside` keeps the checksums of pages right, so that it shows what only the content of a page tells. `foreign` is
another SQLite, that of the standard library, which knows nothing of checksums. Two of them on one file in one process
would drop each other's locks, so it is used out there only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOREIGN = """
import json, sqlite3, sys
path, statements = sys.argv[1], json.loads(sys.argv[2])
connection = sqlite3.connect(path)
for statement in statements:
    rows = connection.execute(statement).fetchall()
connection.commit()
connection.close()
print(json.dumps(rows))
"""
OUTSIDE = """
import apsw, apsw.sqlite_extra, ctypes, json, sys
from contextlib import nullcontext
path, statements = sys.argv[1], json.loads(sys.argv[2])
apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
connection = apsw.Connection(path, vfs="cksmvfs")
reserved = ctypes.c_int(8)
connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(reserved))
with nullcontext() if len(statements) == 1 else connection:
    for statement in statements:
        rows = connection.execute(statement).fetchall()
connection.close()
print(json.dumps(rows))
"""


def outside(path: Path, *statements: str) -> Any:
    """Execute the statements in one transaction, with checksums; the rows of the last one."""
    return _executed(OUTSIDE, path, statements)


def foreign(path: Path, *statements: str) -> Any:
    """Execute the statements by a library that knows nothing of checksums; the rows of the last one."""
    return _executed(FOREIGN, path, statements)


def _executed(program: str, path: Path, statements: Sequence[str]) -> Any:
    command = [sys.executable, "-c", program, str(path), json.dumps(statements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
