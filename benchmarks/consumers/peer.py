"""The projection runner of `eventsourcing` with the same table: a total for each key, in the same PostgreSQL server.

It is used as its documentation shows: a view that is a `PostgresTrackingRecorder`, whose update and tracking record are
one transaction per event. Its recorder for SQLite has no subscriptions, so there is no figure for SQLite.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier


class Wallet(Aggregate):
    def __init__(self) -> None:
        self.total = 0

    @event("Added")
    def add(self, amount: int) -> None:
        self.total += amount


class Totals(PostgresTrackingRecorder):
    def __init__(self, datastore: PostgresDatastore, **options: Any) -> None:
        super().__init__(datastore, **options)
        self._table = Identifier(datastore.schema, "peer_totals")
        create = SQL("CREATE TABLE IF NOT EXISTS {} (key uuid PRIMARY KEY, total bigint)")
        self.sql_create_statements.append(create.format(self._table))
        self._upsert = SQL(
            "INSERT INTO {0} AS t VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET total = t.total + excluded.total"
        ).format(self._table)

    def add(self, key: Any, amount: int, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute(self._upsert, (key, amount))
            self._insert_tracking(cursor, tracking)


class TotalsProjection(Projection[Totals]):
    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.insert_tracking(tracking)

    @process_event.register
    def _(self, domain_event: Wallet.Added, tracking: Tracking) -> None:  # type: ignore[name-defined]
        self.view.add(domain_event.originator_id, domain_event.amount, tracking)


def rate(url: str, events: int, keys: int) -> float:
    """Events per second that the runner handles, of this number that were stored before."""
    given = conninfo_to_dict(url)
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(given.get("dbname")),
        "POSTGRES_HOST": str(given.get("host")),
        "POSTGRES_PORT": str(given.get("port") or 5432),
        "POSTGRES_USER": str(given.get("user")),
        "POSTGRES_PASSWORD": str(given.get("password") or ""),
    }
    app = Application[Any](env)
    for _ in range(keys):
        wallet = Wallet()
        for _ in range(events // keys - 1):  # its creation is an event as well
            wallet.add(1)
        app.save(wallet)
    began = perf_counter()
    with ProjectionRunner(
        application_class=Application, projection_class=TotalsProjection, view_class=Totals, env=env
    ) as runner:
        runner.wait(events, timeout=600)
        return events / (perf_counter() - began)
