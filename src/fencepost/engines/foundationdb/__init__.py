"""Stores on FoundationDB, for those who outgrow one machine.

Appends that have nothing to do with each other commit in parallel, on any number of machines;
those that do are told apart by the database's own conflict detection, exactly, because it is
given the buckets of the conflict kernel as keys. In this order:

    binding     what is used of FoundationDB's Python binding, and loading it
    keys        where everything is, positions as versionstamps, buckets as conflict keys
    records     an event as bytes, in pieces that fit into values
    drafts      what an append writes, worked out once, and whether it fits into a transaction
    postings    sorted streams of positions: postings, their unions and intersections
    judging     the verdict on an append, as far as the past decides it
    scanning    reading the log, in pages
    engine      the engine: commits, and everything else that a store asks for

tests/foundationdb runs all of it on `fencepost.testing.simulated_fdb`, or on a real cluster.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from ...errors import InvalidInput, StoreUnavailable
from ...store import Engine

OPTIONS = {"namespace"}


def open_foundationdb(address: str, **options: Any) -> Engine:
    """The engine for `<cluster file>?namespace=<name>`, both parts being optional.

    Without a cluster file FoundationDB's default one is used.
    """
    cluster_file, _, query = address.partition("?")
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise InvalidInput("address", f"unknown option {name!r}; known are {', '.join(sorted(OPTIONS))}")
        options.setdefault(name, value)
    if options.pop("record_conditions", False):
        raise InvalidInput("record_conditions", "FoundationDB's engine does not keep the conditions of appends")
    try:
        from .binding import connect
        from .engine import FoundationDBEngine
    except ModuleNotFoundError as error:
        raise StoreUnavailable(
            "FoundationDB's Python binding is not installed: pip install 'fencepost[foundationdb]'"
        ) from error
    return FoundationDBEngine(connect(cluster_file or None), **options)
