"""`python -m tests.soak`: soak runs on SQLite and PostgreSQL, for some minutes each, from a seed that is printed."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.soak.chaos import Soak
from tests.soak.places import postgres_place, sqlite_place
from tests.support.postgres import PostgresServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long processes are disturbed, per engine")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--engine", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--workers", type=int, default=3)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the processes are ended
    for engine in ("sqlite", "postgres"):
        if chosen.engine not in (engine, "both"):
            continue
        print(f"{engine}: {chosen.seconds:.0f} s, --seed {chosen.seed}", flush=True)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
            if engine == "sqlite":
                address, into = sqlite_place(folder)
            else:
                server = stack.enter_context(PostgresServer(max_connections=200, fsync="off"))
                address, into = postgres_place(server.url(), "soak")
            soak = Soak(address, into, folder, chosen.seed, workers=chosen.workers)
            try:
                soak.run(chosen.seconds)
            except BaseException:
                kept = Path(tempfile.mkdtemp(prefix="soak-failed-"))
                for log in folder.glob("*.log"):
                    (kept / log.name).write_bytes(log.read_bytes())
                print(f"{engine}: failed with --seed {chosen.seed}; the logs are in {kept}", flush=True)
                raise
            print(f"{engine}: all promises were kept; {dict(soak.actions)}", flush=True)


if __name__ == "__main__":
    main()
