"""Run the torture programs: `python -m tests.torture [--seconds N] [--seed N] [NAME ...]`.

`python -m tests.torture --interrupts N [--engine NAME]` runs only the program `interrupts`, until each engine had N.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from .interrupts import ENGINES, run_until
from .programs import program_names, run_program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(program_names())}")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each program runs (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run (default: a new seed)")
    parser.add_argument("--interrupts", type=int, help="interrupt each engine this often, instead of a time")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="with --interrupts: only this engine")
    options = parser.parse_args()
    unknown = set(options.names) - set(program_names())
    if unknown:
        parser.error(f"unknown program {min(unknown)}; known are {', '.join(program_names())}")
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    if options.interrupts is not None:
        for summary in run_until(options.interrupts, seed, options.engine or ENGINES):
            print(f"{summary} (seed {seed})", flush=True)
        return 0
    for name in options.names or program_names():
        began = time.monotonic()
        print(f"{name} (seed {seed}) ...", flush=True)
        print(f"{name}: {run_program(name, options.seconds, seed)} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
