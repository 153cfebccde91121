"""Clients of a store on a real cluster, each a process of its own, and the check of what they did.

A client appends under conditions and reads, by a seed, and writes down every call and answer. Afterwards the history
checker compares all of them with the log. Clients may be killed, and their FoundationDB client may fail at random
(buggify): an append without an answer may be stored or not, everything else must agree.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path

from tests.foundationdb.workload import decide, read

import fencepost
from fencepost import AppendRefused, EventStore, StoreError
from fencepost.testing.clients import Answered, ClientStore, load
from fencepost.testing.history import Violation, check

# Network options of FoundationDB's client can be set in the environment.
BUGGIFY = {
    "FDB_NETWORK_OPTION_CLIENT_BUGGIFY_ENABLE": "",
    "FDB_NETWORK_OPTION_CLIENT_BUGGIFY_SECTION_ACTIVATED_PROBABILITY": "50",
    "FDB_NETWORK_OPTION_CLIENT_BUGGIFY_SECTION_FIRED_PROBABILITY": "10",
}


def work(recorder: ClientStore, seed: str, rounds: Iterable[int]) -> None:
    """Append or read once a round."""
    chance = random.Random(seed)
    for _ in rounds:
        with suppress(AppendRefused, StoreError):
            (read if chance.random() < 0.2 else decide)(recorder, chance)


def rounds_for(seconds: float) -> Iterator[int]:
    """Rounds until the time is over."""
    end = time.monotonic() + seconds
    return takewhile(lambda _: time.monotonic() < end, count())


def start(address: str, folder: Path, *, clients: int, seconds: float, buggify: bool) -> list[subprocess.Popen[bytes]]:
    """Start the clients; each writes its history to a file in the folder."""
    environment = {**os.environ, **(BUGGIFY if buggify else {})}
    module = "tests.foundationdb.cluster.clients"
    return [
        subprocess.Popen([sys.executable, "-m", module, address, str(folder), str(n), str(seconds)], env=environment)
        for n in range(clients)
    ]


def violations(store: EventStore, folder: Path) -> list[Violation]:
    """What the log and the histories in the folder disagree about."""
    return check([load(path) for path in sorted(folder.glob("*.history"))], store.read(), gapless=False)


def answers(folder: Path) -> int:
    """How many appends got an answer, in all histories."""
    return sum(isinstance(record, Answered) for path in folder.glob("*.history") for record in load(path))


def main(address: str, folder: str, client: str, seconds: str) -> None:
    with fencepost.open(address) as store:
        work(ClientStore(store, client, path=Path(folder) / f"{client}.history"), client, rounds_for(float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
