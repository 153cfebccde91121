"""The same events in each store, put there in the fastest way."""

from __future__ import annotations

import psycopg

from fencepost import Event
from fencepost.engines.postgres import install, load

from .peers import TYPES, Crablet, EventSourcing

DATA = b'{"amount": 1, "note": "' + b"x" * 175 + b'"}'


def fact(number: int) -> tuple[str, list[str], bytes]:
    """200 bytes of data and 3 tags, as in the other benchmarks."""
    tags = [f"wallet:{number % 100_000}", f"branch:{number % 1_000}", f"operation:{number}"]
    return TYPES[number % len(TYPES)], tags, DATA


def fill(url: str, count: int) -> None:
    install(url)
    load(url, (Event(type, tags=tags, data=data) for type, tags, data in map(fact, range(count))))
    for peer in (EventSourcing, Crablet):
        peer(url, 1).close()  # which makes its tables
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for table in ("dcb_events_tt_main", "crablet.events"):
            with cursor.copy(f"COPY {table} (type, tags, data) FROM STDIN".encode()) as copy:
                for number in range(count):
                    copy.write_row(fact(number))
        cursor.execute(
            "INSERT INTO dcb_events_tt_tag SELECT t.tag, m.id FROM dcb_events_tt_main m, unnest(m.tags) t (tag)"
        )
        cursor.execute("VACUUM ANALYZE")
