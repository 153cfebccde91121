"""Handing over: another program, such as a job on Spark, builds the table of a read model, and its consumer goes on.

The builder takes the lease of the read model's consumer and keeps it alive, so no other process writes into the table.
While the table is incomplete, its checkpoint is 0. A consumer that finds the checkpoint 0 empties the table and begins
anew, so a builder that dies leaves nothing behind. The last rows and the checkpoint are one transaction. Then the lease
is released, and the consumer goes on with the next event: none is missed, and none is applied twice.

tests/consumers/test_handing_over.py kills a builder, and tests/spark/test_rebuilding.py builds while writers append.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from .. import EventStore
from ..decisions import Projection, project
from ..engine import Wakeup
from ..errors import FencepostError
from .columns import quoted
from .control import release_lease, take_lease
from .control_state import Control
from .errors import CommandRefused, LeaseLost, TargetRefused
from .leases import Lease
from .observations import log
from .presence import Presence
from .read_models import ADD, BUILDING, ReadModel, position_of_version, states_of
from .sql import SqlTarget
from .sql_targets import files_of, target_of

ROWS: Final = 2_000  # of one transaction
LEASE_S: Final = 30.0  # longer than a consumer's: a busy driver must not lose hours of work to a late heartbeat


class Builder:
    """Writes the rows of a version of a read model that is not published yet. Use it in a `with` block."""

    def __init__(
        self,
        model: ReadModel,
        store: EventStore,
        *,
        control: EventStore | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        self._model = model
        self._lease_s = lease_s
        self._store = store if control is None else control
        target = target_of(model.into, store, files_of([store, self._store]))
        if not isinstance(target, SqlTarget):
            raise TargetRefused(f"{model.table}: a read model needs an SQL database")
        self._target = target
        self._table = model.physical(model.version)
        self._begun = False
        self._ended = False
        self._wakeup = Wakeup()

    def __enter__(self) -> Builder:
        self._lease = self._take()
        self._beating = threading.Thread(target=self._beat, name="fencepost-builder-lease", daemon=True)
        self._beating.start()
        try:
            self._target.claim(self._lease, 0)
            self.reached = self._check()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    def write(self, rows: Iterable[tuple[tuple[str, ...], Projection]]) -> int:
        """Write rows: the key of each, and its projection. Returns how many. The table is not complete yet."""
        written, left = 0, iter(rows)
        while chunk := list(islice(left, ROWS)):
            self._write(chunk, 0)
            written += len(chunk)
        return written

    def finish(self, position: int) -> None:
        """Say that the rows are the fold of every event up to the position. The consumer goes on from there."""
        self._write([], position)
        self._lease.beat(position)

    def _write(self, rows: Sequence[tuple[tuple[str, ...], Projection]], position: int) -> None:
        columns, target = self._model.columns, self._target
        if self._lease.lost:
            raise LeaseLost(self._model.name, self._lease.token)
        with target.transaction() as transaction:
            if not self._begun:
                target.run(transaction, f"DELETE FROM {quoted(self._table)}")
            if rows:
                values = [columns.row_of(key, projection) for key, projection in rows]
                target.run_many(transaction, columns.upsert(self._table), values)
            target.save(transaction, position)
        self._begun = True

    def _check(self) -> int:
        """Refuse a version that readers use, create the table, and return what it has reached."""
        model, target = self._model, self._target
        with target.transaction() as transaction:
            state = states_of(target, transaction, model).get(model.version)
            if state not in (None, BUILDING):
                raise CommandRefused(
                    f"{model.table}: version {model.version} is {state}, so readers may use it; change the projection "
                    "or raise its version to build another table beside it"
                )
            target.run(transaction, model.columns.create(self._table))
            if state is None:
                target.run(transaction, ADD, (model.table, model.version, BUILDING))
            return position_of_version(target, transaction, model, model.version)

    def _take(self) -> Lease:
        """Take the consumer's lease, from its leader if it has one."""
        model, store = self._model, self._store
        holder = f"{socket.gethostname()}/{os.getpid()}/builder-{uuid4().hex[:8]}"
        self._presence = presence = Presence(store, holder, self._lease_s)
        while True:
            session = presence.ensure()
            over = project(store, Control(model.name)).token_of(0)
            options: dict[str, Any] = {"holder": holder, "lease_s": self._lease_s, "query": model.query.to_json()}
            taken = take_lease(store, Control(model.name), over=over, slot=presence.slot, session=session, **options)
            control = project(store, Control(model.name))
            if taken.events and control.token_of(0) == taken.position:
                return Lease(
                    store, model.name, control.fence_of(0), control.generation, self._lease_s, presence=presence
                )

    def _beat(self) -> None:
        """Keep the lease alive until the builder has ended or has lost it."""
        while not self._ended and not self._lease.lost:
            self._wakeup.wait(self._lease.lease_s / 3)
            try:
                if not self._ended:
                    self._presence.beat()
            except FencepostError as error:
                log.warning("read model %r: no heartbeat: %s", self._model.table, error)

    def _leave(self) -> None:
        self._ended = True
        self._wakeup.set()
        self._beating.join()
        self._target.close()
        if not self._lease.lost:
            release_lease(self._store, Control(self._model.name), holder=self._presence.holder)
        self._presence.end()
