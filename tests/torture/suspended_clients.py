"""Processes that append to PostgreSQL in transactions of several calls, and are suspended at random moments.

The other clients go on: no append waits longer than its patience, and positions have no gaps.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event

PATIENCE_S = 20.0
CLIENT = """
import sys, fencepost
from fencepost import Event, StoreError
with fencepost.open(sys.argv[1], patience_s=2, record_conditions=sys.argv[2] == "recording") as store:
    while True:
        try:
            store.append([Event("Suspended")] * (5_000 if sys.argv[2] == "large" else 2))
        except StoreError:
            pass
        print("appended", flush=True)
"""


def run(seconds: float, seed: int) -> str:
    chance = random.Random(seed)
    deadline = time.monotonic() + seconds
    suspended = appended = 0
    with (
        PostgresServer(fsync="off") as server,
        fencepost.open(server.url(), create=True, patience_s=PATIENCE_S) as store,
    ):
        clients = [
            subprocess.Popen([sys.executable, "-c", CLIENT, server.url(), kind], stdout=subprocess.PIPE)
            for kind in ("recording", "large")
        ]
        try:
            while suspended == 0 or time.monotonic() < deadline:
                for client in clients:
                    assert client.stdout is not None
                    client.stdout.readline()
                time.sleep(chance.random() / 20)
                for client in clients:
                    client.send_signal(signal.SIGSTOP)
                suspended += 1
                store.append([Event("Other")])  # which raises if its patience ends first
                appended += 1
                for client in clients:
                    client.send_signal(signal.SIGCONT)
        finally:
            for client in clients:
                client.kill()
                client.communicate()
        head = store.head()
        assert sum(1 for _ in store.read()) == head, f"seed {seed}: positions have gaps"
    return f"{suspended} times two clients were suspended, and {appended} appends beside them were stored"
