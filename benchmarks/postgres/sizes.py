"""What grows with the store and what does not: checks of conditions, reads by tag, bulk, bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import psycopg
from rich.console import Console

import fencepost
from fencepost import Event, Query
from fencepost.engines.postgres import install, load

from .filling import DATA, fact
from .peers import TYPES, Crablet, EventSourcing

SMALL, LARGE = 10_000, 1_000_000
BESIDE = 100_000  # events in each store where bytes and reads are compared with peers
WARM = 1_000  # events of each of two tags that never meet
ROUNDS = 12
MOMENT_S = 0.05

SHAPES: dict[str, tuple[list[str], list[str]]] = {
    "hot tag (in every event)": ([], ["hot"]),
    "absent tag": ([], ["absent"]),
    "absent type": (["Absent"], []),
    "hot tag and absent type": (["Absent"], ["hot"]),
    "hot tag and absent tag": ([], ["hot", "absent"]),
    "hot tag and a wallet's": ([], ["hot", "wallet:7"]),
    "hot tag, wallet's tag and type": (["MoneyDeposited"], ["hot", "wallet:7"]),
    "two warm tags that never meet": ([], ["warm:a", "warm:b"]),
}

console = Console(file=sys.stderr)


def measure(url: str) -> dict[str, Any]:
    result = {**_beside_peers(url), **_flatness(url)}
    console.print(result)
    return result


def _flatness(url: str) -> dict[str, Any]:
    checks: dict[str, dict[int, float]] = {shape: {} for shape in SHAPES}
    result: dict[str, Any] = {}
    for size in (SMALL, LARGE):
        schema = f"store_{size}"
        install(url, schema)
        began = perf_counter()
        load(url, _events(size), schema=schema)
        result["bulk load, events/s"] = size / (perf_counter() - began)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"VACUUM ANALYZE {schema}.event, {schema}.more_tags".encode())
            for shape, (types, tags) in SHAPES.items():
                checks[shape][size] = _check_us(connection, schema, types, tags, 0 if "warm" in shape else size // 2)
        if size == LARGE:
            result |= _tag_read(url, schema)
    result["checks"] = {shape: {"small": sizes[SMALL], "large": sizes[LARGE]} for shape, sizes in checks.items()}
    return result


def _events(size: int) -> Iterator[Event]:
    """All have the hot tag; 100 have each branch's tag; the warm ones are spread over the whole log."""
    every = size // WARM
    for number in range(size):
        warm = {0: ["warm:a"], every // 2: ["warm:b"]}.get(number % every, [])
        tags = ["hot", f"wallet:{number % (size // 10)}", f"branch:{number % (size // 100)}", *warm]
        yield Event(TYPES[number % len(TYPES)], tags=tags, data=DATA)


def _check_us(connection: psycopg.Connection[Any], schema: str, types: list[str], tags: list[str], after: int) -> float:
    """In the server, with the plans that appends have: made once, without looking at the values."""
    settings = "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off"
    connection.execute(
        f"""CREATE OR REPLACE FUNCTION pg_temp.checks(types text[], tags text[], after bigint, times integer)
            RETURNS void LANGUAGE plpgsql {settings} AS $$
            BEGIN
                FOR n IN 1 .. times LOOP PERFORM {schema}.matches(types, tags, after, 1000000, 1, false); END LOOP;
            END $$""".encode()
    )
    best = float("inf")
    times = 5  # at first; then as many as fit into a moment
    for _ in range(ROUNDS):
        began = perf_counter()
        connection.execute("SELECT pg_temp.checks(%s, %s, %s, %s)", [types, tags, after, times])
        taken = (perf_counter() - began) / times
        best, times = min(best, taken), max(5, int(MOMENT_S / taken))
    return best * 1e6


def _tag_read(url: str, schema: str) -> dict[str, float]:
    """100 events by a tag, beside as many rows by primary key with the same columns."""
    with fencepost.open(url, schema=schema) as store, psycopg.connect(url, autocommit=True) as connection:
        positions = [event.position for event in store.read(Query.of(tags={"branch:77"}))]
        assert len(positions) == 100
        statement = (
            "SELECT position, type, tags, data, recorded_at, id, metadata::text "
            f"FROM {schema}.event WHERE position = ANY (%s)"
        ).encode()

        def by_key() -> object:
            return connection.execute(statement, [positions], binary=True).fetchall()

        def by_tag() -> object:
            return list(store._engine.scan(Query.of(tags={"branch:77"}), after=0, upto=LARGE))

        return {"read of 100 by tag, us": _best_us(by_tag), "read of 100 by primary key, us": _best_us(by_key)}


def _beside_peers(url: str) -> dict[str, Any]:
    """The same events in each, written in the way that each offers for many."""
    facts = [fact(number) for number in range(BESIDE)]
    ours = fencepost.open(url, create=True)
    for begin in range(0, BESIDE, 100):
        ours.append([Event(type, tags=tags, data=data) for type, tags, data in facts[begin : begin + 100]])
    theirs = EventSourcing(url, 1)
    for begin in range(0, BESIDE, 100):
        theirs.append_many(facts[begin : begin + 100])
    crablet = Crablet(url, 1)
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor() as cursor, cursor.copy("COPY crablet.events (type, tags, data) FROM STDIN") as copy:
            for row in facts:
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE")
        sizes = {name: _bytes(connection, schema) / BESIDE for name, schema in (
            ("fencepost", "fencepost"), ("eventsourcing", "public"), ("crablet's design", "crablet"))}  # fmt: skip
    ours_read = Query.of(tags={"branch:77"})
    reads = {
        "fencepost": _best_us(lambda: list(ours.read(ours_read))),
        "eventsourcing": _best_us(lambda: theirs.read("branch:77")),
        "crablet's design": _best_us(lambda: crablet.read("branch:77")),
    }
    for store in (ours, theirs, crablet):
        store.close()
    return {"bytes an event": sizes, "read of 100 by tag beside peers, us": reads}


def _bytes(connection: psycopg.Connection[Any], schema: str) -> int:
    row = connection.execute(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace",
        [schema],
    ).fetchone()
    assert row is not None
    return int(row[0])


def _best_us(act: Callable[[], object], times: int = 200) -> float:
    """The fastest tenth's end: what it takes when nobody interferes."""
    taken = []
    for _ in range(times):
        began = perf_counter()
        act()
        taken.append(perf_counter() - began)
    return sorted(taken)[times // 10] * 1e6
