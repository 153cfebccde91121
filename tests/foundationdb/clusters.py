"""Where the tests run: on the simulator, or on the real cluster that FENCEPOST_TEST_FDB names."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from tests.support.simulated_fdb import FDBError, SimulatedCluster

from fencepost.engines.foundationdb.binding import Connection, connect
from fencepost.engines.foundationdb.engine import FoundationDBEngine

CLUSTER_FILE = os.environ.get("FENCEPOST_TEST_FDB")


def simulated(cluster: SimulatedCluster) -> Connection:
    return Connection(cluster.open(), FDBError)


def connection(cluster: SimulatedCluster) -> Connection:
    """To the real cluster if there is one, else to this simulated one."""
    return connect(CLUSTER_FILE) if CLUSTER_FILE else simulated(cluster)


def engine_on(cluster: SimulatedCluster, namespace: str = "test", **options: Any) -> FoundationDBEngine:
    return FoundationDBEngine(simulated(cluster), namespace=namespace, **options)


def new_namespace() -> str:
    return f"fencepost-test-{uuid4()}"


class Hooked:
    """A database, real or simulated, that calls `before_commit` before each transaction commits."""

    def __init__(self, database: Any, before_commit: Callable[[], None]) -> None:
        self._database = database
        self._before_commit = before_commit

    def create_transaction(self) -> Any:
        return _HookedTransaction(self._database.create_transaction(), self._before_commit)


class _HookedTransaction:
    def __init__(self, transaction: Any, before_commit: Callable[[], None]) -> None:
        self._transaction = transaction
        self._before_commit = before_commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def commit(self) -> Any:
        self._before_commit()
        return self._transaction.commit()
