"""Read models: a table with a row for each instance of a projection, kept up to date by a consumer.

    balances = ReadModel(Balance, into="views.db", table="balances")

The projection is the class that decisions use. A row holds its fields and the position of the last event applied to
it, so the next event is applied to what the row says.

A version of a read model is the fingerprint of its projection, as snapshots have it. Each version has a table, a
checkpoint and a lease of its own, and `balances` is a view of the published one. A changed projection is built beside
the old one, while readers use the old one and processes with the old code keep it up to date. It is published in one
transaction when it has caught up and is not behind the published one. Readers see neither a gap nor a mixture nor an
older state (tests/consumers/test_read_models.py has a reader that looks all the time).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import Any, Final

from .. import EventStore, Query, SequencedEvent
from ..decisions import DefinitionError, Projection
from ..decisions.inspection import fingerprint
from ..engine import pause
from ..errors import InvalidInput
from .columns import Columns, quoted
from .declaration import LEASE_S, Consumer, Failures
from .errors import CommandRefused, TargetRefused, WaitTimedOut
from .event_handlers import Handlers
from .observations import log
from .sessions import Session
from .sql import FIND, LOCK, SqlTarget
from .sql_targets import target_of
from .targets import Target

BATCH: Final = 10_000  # rows are written once per batch, so a larger one writes less
HELD: Final = 100_000  # rows in memory; when there are more, all are forgotten and read again as they are needed

KNOWN = "SELECT version, state FROM fencepost_read_model WHERE model = %s"
ADD = "INSERT INTO fencepost_read_model (model, version, state) VALUES (%s, %s, %s)"
SET_STATE = "UPDATE fencepost_read_model SET state = %s WHERE model = %s AND version = %s"
REMOVE = "DELETE FROM fencepost_read_model WHERE model = %s AND version = %s"
REMOVE_CHECKPOINT = "DELETE FROM fencepost_consumer WHERE name = %s"

PUBLISHED, PREVIOUS, BUILDING, WITHDRAWN = "published", "previous", "building", "withdrawn"


class ReadModel(Consumer):
    """A consumer that keeps a table. `into` is an SQL database, `table` the name that queries use.

    The key is the parameters of the projection; `by` may repeat them, so that a reader of the declaration sees them.
    """

    def __init__(
        self,
        projection: type[Projection],
        *,
        into: Any,
        table: str,
        by: str | tuple[str, ...] | None = None,
        batch: int = BATCH,
        lease_s: float = LEASE_S,
        failures: Failures | None = None,
    ) -> None:
        if into is None or isinstance(into, EventStore):
            raise InvalidInput("into", "a read model needs an SQL database: a path, a URL, a connection or an engine")
        self.projection = projection
        self.table = table
        self.columns = Columns(projection)
        given = self.columns.keys if by is None else (by,) if isinstance(by, str) else tuple(by)
        if set(given) != set(self.columns.keys):
            raise DefinitionError(f"by: {projection.definition.name} is scoped by {self.columns.keys}, not by {given}")
        self.version = fingerprint(projection).hex()[:12]
        self._reading = Lock()
        self._reader: SqlTarget | None = None
        super().__init__(f"{table}@{self.version}", into=into, batch=batch, lease_s=lease_s, failures=failures)

    @property
    def query(self) -> Query:
        """Every event that the projection handles."""
        definition = self.projection.definition
        return Query.all() if definition.every is not None else Query.of(types=definition.types)

    def session(self) -> Session:
        return ReadModelSession(self)

    def physical(self, version: str) -> str:
        """The table of a version."""
        return f"{self.table}_{version}"

    def wait_for(self, store: EventStore, position: int, *, timeout_s: float = 10.0) -> None:
        """Wait until the published table contains every event up to the position.

        Positions grow in the order of commits, so a table at this position contains the caller's own append and
        everything before it. Raises `WaitTimedOut`.
        """
        deadline, wait_s = monotonic() + timeout_s, 0.001
        while True:
            reached = self.position()
            if reached >= position:
                return
            # A store that does not have the position yet, such as a replica, cannot say what there is up to it.
            if store.head() >= position and not list(store.read(self.query, after=reached, up_to=position, limit=1)):
                return  # what the table does not contain yet does not concern it
            if monotonic() >= deadline:
                raise WaitTimedOut(self.table, position, reached, timeout_s)
            pause(wait_s)
            wait_s = min(wait_s * 2, 0.02)

    def position(self) -> int:
        """The position that the published table has reached; 0 if no version is published."""
        with self._read() as (target, transaction):
            return position_of_version(target, transaction, self, _of_state(target, transaction, self, PUBLISHED))

    def built_up_to(self) -> int:
        """The position that the table of this version has reached, whether it is published or not."""
        with self._read() as (target, transaction):
            return position_of_version(target, transaction, self, self.version)

    def lookup(self, keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Projection]:
        """The rows with these keys in the table of this version, each as an instance of the projection."""
        if not keys:
            return {}
        statement = self.columns.select(self.physical(self.version), len(keys))
        with self._read() as (target, transaction):
            _, rows = target.run(transaction, statement, tuple(part for key in keys for part in key))
        return dict(map(self.columns.projection_of, rows))

    def rollback(self) -> None:
        """Publish the version before this one again, and do not publish the withdrawn one by itself later."""
        with self._reading:
            target = self.reader()
            with target.transaction() as transaction:
                old = _of_state(target, transaction, self, PREVIOUS)
                new = _of_state(target, transaction, self, PUBLISHED)
                if old is None or new is None:
                    raise CommandRefused(f"{self.table}: there is no previous version to go back to")
                target.run(transaction, SET_STATE, (WITHDRAWN, self.table, new))
                target.run(transaction, SET_STATE, (PUBLISHED, self.table, old))
                _show(target, transaction, self, old, None)

    @contextmanager
    def _read(self) -> Iterator[tuple[SqlTarget, Any]]:
        with self._reading:
            target = self.reader()
            with target.reading() as transaction:
                yield target, transaction

    def reader(self) -> SqlTarget:
        if self._reader is None:
            if not (isinstance(self.into, (str, os.PathLike)) or callable(self.into) or hasattr(self.into, "dialect")):
                raise TargetRefused(
                    "into: its consumer uses this connection; pass a path, a URL, a function or an engine"
                )
            target = target_of(self.into, None, [])
            assert isinstance(target, SqlTarget)
            target.prepare(self.lease_s)
            self._reader = target
        elif self._reader.broken():
            self._reader.prepare(self.lease_s)
        return self._reader


class ReadModelSession(Session):
    """Applies events to rows that are held in memory, and writes the changed ones once per batch."""

    def __init__(self, model: ReadModel) -> None:
        super().__init__(Handlers(model.name))
        self._model = model
        self._table = model.physical(model.version)
        self._held: dict[tuple[str, ...], Projection] = {}
        self._changed: dict[tuple[str, ...], Projection] = {}
        self._holds_all = False
        self._pending = True  # whether this version may still be published
        self._upsert = model.columns.upsert(self._table)
        self._select = model.columns.select(self._table, 1)

    def claimed(self, target: Target, position: int) -> None:
        if not isinstance(target, SqlTarget):
            raise TargetRefused(f"{self._model.table}: a read model needs an SQL database")
        model, self._target = self._model, target
        with target.transaction() as transaction:
            target.run(transaction, model.columns.create(self._table))
            if model.version not in states_of(target, transaction, model):
                target.run(transaction, ADD, (model.table, model.version, BUILDING))
            if position == 0:
                target.run(transaction, f"DELETE FROM {quoted(self._table)}")
            else:
                _, [(last,)] = target.run(transaction, f"SELECT max(position) FROM {quoted(self._table)}")
                if last is not None and int(last) > position:
                    raise TargetRefused(f"{model.table}: a read model can be reset to position 0 only")
        self._holds_all = position == 0

    def handle(self, event: SequencedEvent, transaction: Any) -> None:
        for scope in self._model.projection.definition.scopes_of(event):
            key = tuple(scope.values())
            projection = self._held.get(key)
            if projection is None:
                projection = self._load(key, transaction)
            projection.apply(event)
            self._changed[key] = projection

    def _load(self, key: tuple[str, ...], transaction: Any) -> Projection:
        rows = () if self._holds_all else self._target.run(transaction, self._select, key)[1]
        if not rows:
            projection = self._model.columns.instance(key)
        else:
            _, projection = self._model.columns.projection_of(rows[0])
        self._held[key] = projection
        return projection

    def flush(self, transaction: Any) -> None:
        if self._changed:
            row_of = self._model.columns.row_of
            rows = [row_of(key, projection) for key, projection in self._changed.items()]
            self._target.run_many(transaction, self._upsert, rows)
            self._changed = {}
        if len(self._held) > HELD:
            self._held, self._holds_all = {}, False

    def rolled_back(self) -> None:
        self._held, self._changed, self._holds_all = {}, {}, False

    def caught_up(self, position: int) -> None:
        """Publish this version if it is new and not behind the published one."""
        if not self._pending:
            return
        model, target = self._model, self._target
        with target.transaction() as transaction:
            states = states_of(target, transaction, model)
            if states.get(model.version) != BUILDING:
                self._pending = False
                return
            old = next((version for version, state in states.items() if state == PUBLISHED), None)
            if position_of_version(target, transaction, model, old, lock=True) > position:
                return  # readers would see an older state than before
            target.save(transaction, position)
            self._publish(transaction, old, states)
        self._pending = False
        log.info("read model %r: version %s is published at position %d", model.table, model.version, position)

    def _publish(self, transaction: Any, old: str | None, states: dict[str, str]) -> None:
        model, target = self._model, self._target
        for version in [version for version, state in states.items() if state in (PREVIOUS, WITHDRAWN)]:
            target.run(transaction, f"DROP TABLE IF EXISTS {quoted(model.physical(version))}")
            target.run(transaction, REMOVE, (model.table, version))
            target.run(transaction, REMOVE_CHECKPOINT, (f"{model.table}@{version}",))
        if old is not None:
            target.run(transaction, SET_STATE, (PREVIOUS, model.table, old))
        target.run(transaction, SET_STATE, (PUBLISHED, model.table, model.version))
        _show(target, transaction, model, model.version, model.columns.names)


def _show(target: SqlTarget, transaction: Any, model: ReadModel, version: str, names: Iterable[str] | None) -> None:
    """Make the view of the read model one of this version."""
    columns = "*" if names is None else ", ".join(map(quoted, names))
    target.run(transaction, f"DROP VIEW IF EXISTS {quoted(model.table)}")
    selection = f"SELECT {columns} FROM {quoted(model.physical(version))}"
    target.run(transaction, f"CREATE VIEW {quoted(model.table)} AS {selection}")


def states_of(target: SqlTarget, transaction: Any, model: ReadModel) -> dict[str, str]:
    """The state of each version of the read model."""
    return dict(target.run(transaction, KNOWN, (model.table,))[1])


def _of_state(target: SqlTarget, transaction: Any, model: ReadModel, state: str) -> str | None:
    states = states_of(target, transaction, model)
    return next((version for version, found in states.items() if found == state), None)


def position_of_version(
    target: SqlTarget, transaction: Any, model: ReadModel, version: str | None, *, lock: bool = False
) -> int:
    """The checkpoint of a version. With `lock`, it does not move until the end of the transaction."""
    if version is None:
        return 0
    name = f"{model.table}@{version}"
    if lock:
        target.run(transaction, LOCK, (name,))
    _, found = target.run(transaction, FIND, (name,))
    return int(found[0][0]) if found else 0
