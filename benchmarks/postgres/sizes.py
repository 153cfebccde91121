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
from fencepost.engine import engine_of
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
    result: dict[str, Any] = {}
    for size in (SMALL, LARGE):
        install(url, f"store_{size}")
        began = perf_counter()
        load(url, _events(size), schema=f"store_{size}")
        result["bulk load, events/s"] = size / (perf_counter() - began)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        result["checks"] = {shape: _check_us(connection, shape) for shape in SHAPES}
    return result | _tag_read(url, f"store_{LARGE}")


def _events(size: int) -> Iterator[Event]:
    """All have the hot tag; 100 have each branch's tag; the warm ones are spread over the whole log."""
    every = size // WARM
    for number in range(size):
        warm = {0: ["warm:a"], every // 2: ["warm:b"]}.get(number % every, [])
        tags = ["hot", f"wallet:{number % (size // 10)}", f"branch:{number % (size // 100)}", *warm]
        yield Event(TYPES[number % len(TYPES)], tags=tags, data=DATA)


def _check_us(connection: psycopg.Connection[Any], shape: str) -> dict[str, float]:
    """In the server, with the plans that appends have: made once, without looking at the values.

    The two sizes are taken in turns, so that a moment in which the machine is busy is not that of one of them.
    """
    types, tags = SHAPES[shape]
    sizes = {"small": SMALL, "large": LARGE}
    best = dict.fromkeys(sizes, float("inf"))
    times = dict.fromkeys(sizes, 5)  # at first; then as many as fit into a moment
    for name, size in sizes.items():
        connection.execute(_loop(name, f"store_{size}").encode())
    for _ in range(ROUNDS):
        for name, size in sizes.items():
            after = 0 if "warm" in shape else size // 2
            began = perf_counter()
            connection.execute(f"SELECT pg_temp.{name}(%s, %s, %s, %s)".encode(), [types, tags, after, times[name]])
            taken = (perf_counter() - began) / times[name]
            best[name], times[name] = min(best[name], taken), max(5, int(MOMENT_S / taken))
    return {name: seconds * 1e6 for name, seconds in best.items()}


def _loop(name: str, schema: str) -> str:
    settings = "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off"
    return f"""CREATE OR REPLACE FUNCTION pg_temp.{name}(types text[], tags text[], after bigint, times integer)
        RETURNS void LANGUAGE plpgsql {settings} AS $$
        BEGIN
            FOR n IN 1 .. times LOOP PERFORM {schema}.matches(types, tags, after, 1000000, 1, false); END LOOP;
        END $$"""


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
            return list(engine_of(store).scan(Query.of(tags={"branch:77"}), after=0, up_to=LARGE))

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
