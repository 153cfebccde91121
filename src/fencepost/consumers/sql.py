"""Targets in SQL databases: a batch's effects and its checkpoint are one transaction, so effects happen exactly once.

The checkpoint is a row of the table `fencepost_consumer`: the name of the consumer, the position, and the fencing
token of the leader. `claim` raises the token. `save` moves the position only where the token is still the leader's
own, in the transaction that holds the effects: if the row does not match, the whole transaction is rolled back.
`fencepost_replayed` holds the dead letters that were handled later, so that these happen exactly once, too, and
`fencepost_read_model` the versions of read models.

What differs between sqlite3, psycopg and SQLAlchemy is in `drivers`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from .errors import LeaseLost, TargetRefused
from .leases import Lease
from .targets import Target

TABLES = (
    "CREATE TABLE IF NOT EXISTS fencepost_consumer ("
    "name VARCHAR(500) PRIMARY KEY, position BIGINT NOT NULL, token BIGINT NOT NULL, generation BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fencepost_replayed ("
    "name VARCHAR(500) NOT NULL, generation BIGINT NOT NULL, position BIGINT NOT NULL, "
    "PRIMARY KEY (name, generation, position))",
    "CREATE TABLE IF NOT EXISTS fencepost_read_model ("
    "model VARCHAR(500) NOT NULL, version VARCHAR(64) NOT NULL, state VARCHAR(20) NOT NULL, "
    "PRIMARY KEY (model, version))",
)
# A placeholder is written %s here, and as each driver wants it there.
FIND = "SELECT position, token, generation FROM fencepost_consumer WHERE name = %s"
INSERT = "INSERT INTO fencepost_consumer (name, position, token, generation) VALUES (%s, %s, %s, %s)"
RAISE = "UPDATE fencepost_consumer SET token = %s WHERE name = %s AND token = %s"
BEGIN_AGAIN = "UPDATE fencepost_consumer SET position = %s, generation = %s WHERE name = %s"
SAVE = "UPDATE fencepost_consumer SET position = %s WHERE name = %s AND token = %s AND generation = %s"
CHECK = "UPDATE fencepost_consumer SET token = token WHERE name = %s AND token = %s AND generation = %s"
LOCK = "UPDATE fencepost_consumer SET token = token WHERE name = %s"
REPLAYED = "SELECT 1 FROM fencepost_replayed WHERE name = %s AND generation = %s AND position = %s"
NOTE_REPLAYED = "INSERT INTO fencepost_replayed (name, generation, position) VALUES (%s, %s, %s)"


class Driver(Protocol):
    """What differs between the libraries that speak to databases."""

    def prepare(self, lease_s: float) -> None:
        """Connect if necessary, refuse what cannot work, and create the tables."""

    def transaction(self) -> Any:
        """A context manager that gives the transaction that handlers get."""

    def reading(self) -> Any:
        """A context manager for a transaction that only reads, and does not keep others from writing."""
        return self.transaction()

    def run(self, transaction: Any, statement: str, values: tuple[Any, ...]) -> tuple[int, Any]:
        """Execute one statement; the number of rows it changed, and the first row it returned."""

    def run_many(self, transaction: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        """Execute one statement for each row of values."""

    def all(self, transaction: Any, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Execute one statement and return all of its rows."""

    def broken(self) -> bool:
        """Whether the connection is lost."""
        return False

    def abandon(self) -> None:
        """Called by another thread when a handler hangs: end its transaction, if the connection is our own."""
        self.close()

    def close(self) -> None:
        """Close the connection, if it is our own."""
        return


class SqlTarget(Target):
    """The checkpoint is kept beside the effects, in the same database."""

    transactional = True
    per_event = False

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def claim(self, lease: Lease, start: int) -> int:
        self._lease = lease
        self.driver.prepare(lease.lease_s)
        with self.driver.transaction() as transaction:
            return self._claim(transaction, lease.name, start)

    def claim_others(self, names: Iterable[str], start: int) -> dict[str, int]:
        with self.driver.transaction() as transaction:
            return {name: self._claim(transaction, name, start) for name in names}

    def _claim(self, transaction: Any, name: str, start: int) -> int:
        """Raise the token of a row, so that no earlier leader moves it, and return its position."""
        lease, run = self._lease, self.driver.run
        token, generation = lease.token, lease.generation
        _, row = run(transaction, FIND, (name,))
        if row is None:
            run(transaction, INSERT, (name, start, token, generation))
            return start
        known, known_generation = int(row[1]), int(row[2])
        if known > token:
            if known > lease.store.head():
                raise TargetRefused(
                    f"consumer {lease.consumer!r}: its row of fencepost_consumer was written with the token {known}, "
                    "which is beyond the end of this store; the target belongs to another store, or the store was "
                    "replaced. Use an empty target, or delete that row and what the consumer has written"
                )
            if name == lease.name:
                raise LeaseLost(lease.consumer, token)
        if known < token:
            changed, _ = run(transaction, RAISE, (token, name, known))
            if changed != 1:
                raise LeaseLost(lease.consumer, token)
        if known_generation < generation:
            run(transaction, BEGIN_AGAIN, (start, generation, name))
            return start
        # Read again, because an earlier leader may have committed while RAISE waited for it.
        _, row = run(transaction, FIND, (name,))
        return int(row[0])

    def positions(self, names: Iterable[str]) -> dict[str, int]:
        generation, found = self._lease.generation, {}
        with self.driver.reading() as transaction:
            for name in names:
                _, row = self.driver.run(transaction, FIND, (name,))
                found[name] = -1 if row is None or int(row[2]) < generation else int(row[0])
        return found

    def transaction(self) -> Any:
        return self.driver.transaction()

    def save(self, transaction: Any, position: int) -> None:
        lease = self._lease
        values = (position, lease.name, lease.token, lease.generation)
        changed, _ = self.driver.run(transaction, SAVE, values)
        if changed != 1:
            raise LeaseLost(lease.consumer, lease.token)

    def settle(self, transaction: Any, position: int) -> bool:
        lease = self._lease
        changed, _ = self.driver.run(transaction, CHECK, (lease.name, lease.token, lease.generation))
        if changed != 1:
            raise LeaseLost(lease.consumer, lease.token)
        key = (lease.consumer, lease.generation, position)
        _, found = self.driver.run(transaction, REPLAYED, key)
        if found is not None:
            return False
        self.driver.run(transaction, NOTE_REPLAYED, key)
        return True

    def broken(self) -> bool:
        return self.driver.broken()

    def abandon(self) -> None:
        self.driver.abandon()

    def close(self) -> None:
        self.driver.close()
