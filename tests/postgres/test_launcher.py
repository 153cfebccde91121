"""The throw-away server keeps its data over a crash, and ends when its owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from tests.support import postgres
from tests.support.postgres import PostgresServer

from fencepost.testing.faults import PATIENCE_S

OWNER = """
import sys, time
from tests.support.postgres import PostgresServer
server = PostgresServer().start()
print(server.pid, server.folder, flush=True)
time.sleep(600)
"""


def test_what_was_committed_survives_a_kill_and_a_new_start() -> None:
    with PostgresServer(tcp=True) as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            connection.execute("CREATE TABLE kept (number integer)")
        url = server.url()
        server.kill()
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        folder = server.folder
    assert not folder.exists()


def test_a_server_ends_with_its_owner_even_if_that_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while Path(folder).exists() or _runs(int(pid)):
        assert time.monotonic() < deadline, "the server is still there"
        time.sleep(0.02)


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "START_ATTEMPTS", 1)
    server = PostgresServer(shared_buffers="nonsense")
    with pytest.raises(RuntimeError, match="nonsense"):
        server.start()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
