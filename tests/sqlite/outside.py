"""What another program does to a store's file, in a process of its own.

The standard library has an SQLite of its own, and two of them on one file in one process would drop
each other's locks. So it is used out there only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sqlite3, sys
path, statements = sys.argv[1], json.loads(sys.argv[2])
connection = sqlite3.connect(path)
for statement in statements:
    rows = connection.execute(statement).fetchall()
connection.commit()
connection.close()
print(json.dumps(rows))
"""


def outside(path: Path, *statements: str) -> Any:
    """Execute the statements in one transaction; the rows of the last one."""
    command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(statements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
