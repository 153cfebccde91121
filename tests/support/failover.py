"""Two PostgreSQL servers, a primary and its standby, and clients that write while the primary is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg

import fencepost
from fencepost import Event, EventStore
from fencepost.testing.faults import PATIENCE_S

from .postgres import PostgresServer, Standby

ASYNCHRONOUS: dict[str, Any] = {"wal_level": "replica", "max_wal_senders": 4}
SYNCHRONOUS: dict[str, Any] = {**ASYNCHRONOUS, "synchronous_standby_names": "*"}
TIMEOUT_S = 10 * PATIENCE_S


class Cluster:
    """A primary and its standby, each on a port that stays the same."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self.primary = PostgresServer(tcp=True, **settings).start()
        self.standby = Standby(self.primary, port=_other_port(self.primary), **settings)
        self.standby.start()
        ports = (self.primary.port, self.standby.port)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.url = f"postgresql://postgres:{self.primary.password}@{hosts}/postgres?target_session_attrs=read-write"
        self.wait_for_standby()

    def wait_for_standby(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            while connection.execute("SELECT state FROM pg_stat_replication").fetchall() != [("streaming",)]:
                assert time.monotonic() < deadline, "the standby does not follow"
                time.sleep(0.05)

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def rebuild_standby(self) -> None:
        """Make the server that was killed a standby of the new primary, under its old address."""
        port = self.standby.port
        self.standby.close()
        self.standby = Standby(self.primary, port=port, **self._settings)
        self.standby.start()
        self.wait_for_standby()

    def close(self) -> None:
        self.standby.close()
        self.primary.close()


def _other_port(server: PostgresServer) -> int:
    spare = PostgresServer(tcp=True)
    spare.close()
    assert spare.port != server.port
    return spare.port


@contextmanager
def cluster_of(settings: dict[str, Any]) -> Iterator[Cluster]:
    cluster = Cluster(settings)
    try:
        yield cluster
    finally:
        cluster.close()


class Writer(threading.Thread):
    """Appends one event after the other, notes which are acknowledged, and repeats unknown ones with the same id."""

    def __init__(self, store: EventStore, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[UUID, int] = {}
        self.unknown: list[str] = []
        self.error: Exception | None = None
        self._store = store
        self._end = end

    def run(self) -> None:
        try:
            while not self._end.is_set():
                event = Event("Written", id=uuid4(), tags={"a"})
                while True:
                    try:
                        self.acknowledged[event.id] = self._store.append([event]).last  # type: ignore[index]
                        break
                    except fencepost.StoreUnavailable as error:
                        self.unknown.append(str(error))
        except Exception as error:
            self.error = error


def wait_for_appends(writers: Sequence[Writer]) -> None:
    """Until each writer has appended twenty more events."""
    wanted = [len(writer.acknowledged) + 20 for writer in writers]
    deadline = time.monotonic() + TIMEOUT_S
    while any(len(writer.acknowledged) < count for writer, count in zip(writers, wanted, strict=True)):
        assert time.monotonic() < deadline, [(len(writer.acknowledged), writer.unknown[-1:]) for writer in writers]
        time.sleep(0.02)
