"""Logs of PostgreSQL that go back, as after a failover that lost events, while stores and subscribers have them open.

A store that has seen an event which is lost raises an error for every call, however many events have been appended
since. A store that has not seen any of them continues.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

import psycopg
from tests.support.postgres import PostgresServer

import fencepost
from fencepost import Event, EventStore, StoreCorrupt


def run(seconds: float, seed: int) -> str:
    deadline = time.monotonic() + seconds
    chance = random.Random(seed)
    rounds = refused = 0
    with PostgresServer(fsync="off", max_connections=200) as server:
        while rounds == 0 or time.monotonic() < deadline:
            rounds += 1
            schema = f"store_{rounds}"
            refused += roll_back_once(server.url(), schema, chance, f"seed {seed}, round {rounds}")
    return f"{rounds} logs went back, {refused} stores were refused"


def roll_back_once(url: str, schema: str, chance: random.Random, where: str) -> int:
    refused = 0
    with ExitStack() as opened:
        stores: list[tuple[EventStore, int]] = []
        for _ in range(chance.randint(1, 4)):
            store = opened.enter_context(fencepost.open(url, schema=schema, create=True, connections=2))
            for _ in range(chance.randint(0, 3)):
                store.append([Event("A", data=chance.randbytes(8)) for _ in range(chance.randint(1, 3))])
            stores.append((store, store.head()))
            if chance.random() < 0.3:
                next(store.subscribe(timeout_s=0), None)
        kept = chance.randint(0, stores[-1][1])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DELETE FROM "{schema}".event WHERE position > {kept}'.encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'fencepost'"
            )
        with fencepost.open(url, schema=schema) as other:
            for _ in range(chance.randint(0, 8)):
                other.append([Event("A", data=chance.randbytes(8))])
        for store, seen in stores:
            try:
                store.append([Event("B", data=chance.randbytes(8))])
                assert seen <= kept, f"{where}: {seen} was seen, {kept} were kept, and the store went on"
            except StoreCorrupt:
                assert seen > kept, f"{where}: {seen} was seen, {kept} were kept, and the store was refused"
                refused += 1
    return refused
