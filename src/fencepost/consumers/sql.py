"""Targets in SQL databases: a batch's effects and its checkpoint are one transaction, so effects happen exactly once.

The checkpoint is a row of the table `fencepost_consumer`: the name of the consumer, the position, and the fencing
token of the leader. `claim` raises the token. `save` moves the position only where the token is still the leader's
own, in the transaction that holds the effects: if the row does not match, the whole transaction is rolled back.
`fencepost_replayed` holds the dead letters that were handled later, so that these happen exactly once, too, and
`fencepost_read_model` the versions of read models.

What differs between sqlite3, psycopg and SQLAlchemy is in the subclasses in `sql_targets`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .errors import LeaseLost, TargetRefused
from .leases import Lease
from .targets import Target

Rows: TypeAlias = Sequence[tuple[Any, ...]]

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


class SqlTarget(Target):
    """The checkpoint is kept beside the effects, in the same database."""

    transactional = True
    per_event = False

    @abstractmethod
    def prepare(self, lease_s: float) -> None:
        """Connect if necessary, refuse what cannot work, and create the tables."""

    def reading(self) -> Any:
        """A context manager for a transaction that only reads, and does not keep others from writing."""
        return self.transaction()

    @abstractmethod
    def run(self, transaction: Any, statement: str, values: tuple[Any, ...] = ()) -> tuple[int, Rows]:
        """Execute one statement; the number of rows it changed, and the rows it returned."""

    @abstractmethod
    def run_many(self, transaction: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        """Execute one statement for each row of values."""

    def claim(self, lease: Lease, start: int) -> int:
        self._lease = lease
        self.prepare(lease.lease_s)
        with self.transaction() as transaction:
            return self._claim(transaction, lease.name, start)

    def claim_others(self, names: Iterable[str], start: int) -> dict[str, int]:
        with self.transaction() as transaction:
            return {name: self._claim(transaction, name, start) for name in names}

    def _claim(self, transaction: Any, name: str, start: int) -> int:
        """Raise the token of a row, so that no earlier leader moves it, and return its position."""
        lease, run = self._lease, self.run
        token, generation = lease.token, lease.generation
        _, found = run(transaction, FIND, (name,))
        if not found:
            run(transaction, INSERT, (name, start, token, generation))
            return start
        _, known, known_generation = map(int, found[0])
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
        _, found = run(transaction, FIND, (name,))
        return int(found[0][0])

    def positions(self, names: Iterable[str]) -> dict[str, int]:
        generation, reached = self._lease.generation, {}
        with self.reading() as transaction:
            for name in names:
                _, found = self.run(transaction, FIND, (name,))
                reached[name] = -1 if not found or int(found[0][2]) < generation else int(found[0][0])
        return reached

    def save(self, transaction: Any, position: int) -> None:
        lease = self._lease
        changed, _ = self.run(transaction, SAVE, (position, lease.name, lease.token, lease.generation))
        if changed != 1:
            raise LeaseLost(lease.consumer, lease.token)

    def settle(self, transaction: Any, position: int) -> bool:
        lease = self._lease
        changed, _ = self.run(transaction, CHECK, (lease.name, lease.token, lease.generation))
        if changed != 1:
            raise LeaseLost(lease.consumer, lease.token)
        key = (lease.consumer, lease.generation, position)
        _, found = self.run(transaction, REPLAYED, key)
        if found:
            return False
        self.run(transaction, NOTE_REPLAYED, key)
        return True
