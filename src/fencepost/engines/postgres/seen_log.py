"""The highest head that this process has seen, and whether the log still contains what was seen.

An acknowledged append can be missing after a failover to an asynchronous standby, or after a backup was restored. Its
position is then assigned again. A process that continued would skip events, and its conditions would miss conflicts. So
every new connection is checked before it is used: the head must not be lower than the highest one seen, and the last
event that this process knows must be the same. A failover ends all connections, so it cannot go unnoticed.
tests/postgres/test_rolled_back.py checks this, and tests/postgres/slow/test_failover.py with two servers.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import psycopg

from ...core.interrupts import shielded
from ...errors import StoreCorrupt, StoreError
from ...model import Event
from .error_mapping import Unreachable

WENT_BACK = (
    "the log went back: events that were stored are lost, by a failover to a standby that did not have them or by the "
    "restore of a backup, and their positions may be assigned again; compare what has been derived from this log "
    "(consumers, lakes, views) with it, reset what is ahead of it, then open the store again"
)


class Witness(NamedTuple):
    """An event that was in the log: read from it, with its time, or appended by this process."""

    position: int
    recorded_at: int | None = None
    event: Event | None = None


class SeenLog:
    """`head` is the highest head that this process has seen. `name` is the quoted name of the schema."""

    def __init__(self, name: str) -> None:
        self._last = f"SELECT position, recorded_at FROM {name}.event ORDER BY position DESC LIMIT 1".encode()
        self._check = (
            f"SELECT pg_is_in_recovery(), (SELECT max(position) FROM {name}.event),"
            f" (SELECT min(position) FROM {name}.event), e.recorded_at, e.type, e.tags, e.data"
            f" FROM (VALUES (1)) AS one LEFT JOIN {name}.event e ON e.position = %s"
        ).encode()
        self._lock = threading.Lock()
        self._witness = Witness(0)
        self.head = 0

    def advance(self, head: int, witness: Witness | None = None) -> bool:
        """Note a head, and an event that is known to be there. False: this head is not higher than the known one."""
        with shielded, self._lock:
            if witness is not None and witness.position > self._witness.position:
                self._witness = witness
            if head <= self.head:
                return False
            self.head = head
            return True

    def read_head(self, connection: psycopg.Connection[Any]) -> Witness:
        """The last event, at position 0 if there are no events. Raises if the log went back."""
        seen = self.head  # before the read, since another thread may commit meanwhile
        row = connection.execute(self._last, binary=True).fetchone()
        last = Witness(*row) if row else Witness(0)
        if last.position < seen:
            self.check(connection)
        return last

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """Raise an error if the log of this server does not contain what was seen."""
        seen, witness = self.head, self._witness
        if seen == 0:
            return
        row = connection.execute(self._check, [witness.position], binary=True).fetchone()
        assert row is not None
        is_standby, last, first, recorded_at, type, tags, data = row
        head = last or 0
        if head < seen and is_standby:
            raise Unreachable(f"the server is a standby that lags behind: its head is {head}, and {seen} was seen")
        if head < seen:
            raise went_back(head, seen)
        if witness.position < (first or 0):  # removed together with all events before it
            return
        event = witness.event
        if event is None:
            is_same = recorded_at == witness.recorded_at
        else:
            is_same = (type, data) == (event.type, event.data) and frozenset(tags) == event.tags
        if not is_same:
            raise StoreCorrupt(f"position {witness.position} holds another event than the one seen there: {WENT_BACK}")


def went_back(head: int, seen: int) -> StoreError:
    return StoreCorrupt(f"the head is {head}, and position {seen} was seen: {WENT_BACK}")
