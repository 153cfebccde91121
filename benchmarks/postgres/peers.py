"""The stores under test, behind the few verbs that the workloads need.

Each is used as its documentation shows, over psycopg, with as many connections as it has callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import psycopg
from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.dcb.postgres_tt import PostgresDCBRecorderTT
from eventsourcing.persistence import IntegrityError
from eventsourcing.postgres import PostgresDatastore
from psycopg_pool import ConnectionPool

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query

TYPES = ("MoneyDeposited", "MoneyWithdrawn", "WalletOpened", "WalletRenamed")


class Peer(Protocol):
    """A store, open in one process."""

    name: str
    schema: str

    def append(self, type: str, tags: Sequence[str], data: bytes) -> int: ...
    def append_if(self, type: str, tags: Sequence[str], data: bytes, types: Sequence[str], tag: str, after: int) -> int:
        """The position, 0 when refused."""

    def read(self, tag: str) -> int:
        """How many events have the tag."""

    def poll(self, after: int) -> list[int]:
        """The positions after that one, as a follower would ask for them."""

    def close(self) -> None: ...


class Fencepost:
    name = schema = "fencepost"

    def __init__(self, url: str, callers: int = 8) -> None:
        self.store = fencepost.open(url, create=True)

    def append(self, type: str, tags: Sequence[str], data: bytes) -> int:
        return self.store.append([Event(type, tags=tags, data=data)]).last

    def append_if(self, type: str, tags: Sequence[str], data: bytes, types: Sequence[str], tag: str, after: int) -> int:
        condition = AppendCondition(Query.of(types=types, tags=[tag]), after=after)
        try:
            return self.store.append([Event(type, tags=tags, data=data)], condition).last
        except ConditionFailed:
            return 0

    def read(self, tag: str) -> int:
        return sum(1 for _ in self.store.read(Query.of(tags=[tag])))

    def poll(self, after: int) -> list[int]:
        return [event.position for event in self.store.read(after=after)]

    def close(self) -> None:
        self.store.close()


class EventSourcing:
    name = "eventsourcing"
    schema = "public"

    def __init__(self, url: str, callers: int = 8) -> None:
        parts = urlsplit(url)
        host = parse_qs(parts.query)["host"][0]
        self._datastore = PostgresDatastore(
            parts.path[1:], host, parse_qs(parts.query)["port"][0], "postgres", parts.password or "",
            pool_size=callers, max_overflow=0, connect_timeout=30,
        )  # fmt: skip
        self._recorder = PostgresDCBRecorderTT(self._datastore)
        with psycopg.connect(url) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(1)")
            if connection.execute("SELECT to_regclass('public.dcb_events_tt_main')").fetchone() == (None,):
                self._recorder.create_table()

    def append(self, type: str, tags: Sequence[str], data: bytes) -> int:
        return self._recorder.append([DCBEvent(type, data, list(tags))])

    def append_many(self, facts: Sequence[tuple[str, Sequence[str], bytes]]) -> int:
        return self._recorder.append([DCBEvent(type, data, list(tags)) for type, tags, data in facts])

    def append_if(self, type: str, tags: Sequence[str], data: bytes, types: Sequence[str], tag: str, after: int) -> int:
        condition = DCBAppendCondition(DCBQuery([DCBQueryItem(list(types), [tag])]), after)
        try:
            return self._recorder.append([DCBEvent(type, data, list(tags))], condition)
        except IntegrityError:
            return 0

    def read(self, tag: str) -> int:
        return sum(1 for _ in self._recorder.read(DCBQuery([DCBQueryItem([], [tag])])))

    def poll(self, after: int) -> list[int]:
        return [event.position for event in self._recorder.read(after=after)]

    def close(self) -> None:
        self._datastore.close()


class Crablet:
    name = "crablet's design"
    schema = "crablet"

    def __init__(self, url: str, callers: int = 8) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(1)")
            if connection.execute("SELECT to_regnamespace('crablet')").fetchone() == (None,):
                connection.execute((files(__package__) / "crablet.sql").read_text().encode())
        self._pool = ConnectionPool(url, min_size=callers, max_size=callers, kwargs={"autocommit": True}, timeout=60)

    def append(self, type: str, tags: Sequence[str], data: bytes) -> int:
        return int(self._value("SELECT crablet.append(%s, %s, %s)", [type, list(tags), data]))

    def append_if(self, type: str, tags: Sequence[str], data: bytes, types: Sequence[str], tag: str, after: int) -> int:
        arguments = [type, list(tags), data, list(types), [tag], after]
        return int(self._value("SELECT crablet.append_if(%s, %s, %s, %s, %s, %s)", arguments) or 0)

    def read(self, tag: str) -> int:
        with self._pool.connection() as connection:
            statement = "SELECT * FROM crablet.events WHERE tags @> %s ORDER BY position"
            return len(connection.execute(statement, [[tag]]).fetchall())

    def poll(self, after: int) -> list[int]:
        with self._pool.connection() as connection:
            rows = connection.execute(
                "SELECT position FROM crablet.events WHERE position > %s "
                "AND transaction_id < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY position",
                [after],
            ).fetchall()
        return [row[0] for row in rows]

    def close(self) -> None:
        self._pool.close()

    def _value(self, statement: str, arguments: list[Any]) -> Any:
        with self._pool.connection() as connection:
            row = connection.execute(statement.encode(), arguments).fetchone()
        assert row is not None
        return row[0]


PEERS: dict[str, type[Fencepost] | type[EventSourcing] | type[Crablet]] = {
    peer.name: peer for peer in (Fencepost, EventSourcing, Crablet)
}
