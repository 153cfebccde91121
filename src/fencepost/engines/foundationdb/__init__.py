"""Stores on FoundationDB, for logs that outgrow one machine.

Appends that have nothing to do with each other commit in parallel, on any number of machines;
those that do are told apart by the database's own conflict detection, exactly, because it is
given the buckets of the conflict kernel as keys. In this order:

    binding       what is used of FoundationDB's Python binding, and loading it
    waiting       steps that wait for futures, in a thread or on an event loop
    ranges        range reads, begun at once and taken reply by reply
    tries         a call's transactions, one after another, and what a call fails of
    keys          where everything is, positions as versionstamps, buckets as conflict keys
    pieces        an event as bytes, in pieces that fit into values
    drafts        what an append writes, worked out once, and whether it fits into a transaction
    rarity        which buckets the conditions of an append read
    postings      sorted streams of positions: postings, their unions and intersections
    scanning      the head, and reading the log in pages, merged from its partitions
    judging       the verdict on an append, as far as the past decides it
    tokens        what tells a later try that an earlier one was stored, and clearing it
    observations  what observers are told
    appending     one append, with all its tries
    engine        the engine: everything that a store asks for, and waiting for a new head

tests/foundationdb runs all of it on `tests.support.simulated_fdb`, or on a real cluster.
"""

from __future__ import annotations

from typing import Any

from ...address import Address
from ...core.engine import Engine
from ...errors import InvalidInput, StoreUnavailable


def open_engine(address: Address, **options: Any) -> Engine:
    """The engine for `<cluster file>?namespace=<name>`, both parts being optional.

    Without a cluster file FoundationDB's default one is used.
    """
    options = {**address.options, **options}
    if options.pop("record_conditions", False):
        raise InvalidInput("record_conditions", "FoundationDB's engine does not keep the conditions of appends")
    try:
        from .binding import connect
        from .engine import FoundationDBEngine
    except ModuleNotFoundError as error:
        raise StoreUnavailable(
            "FoundationDB's Python binding is not installed: pip install 'fencepost[foundationdb]'"
        ) from error
    return FoundationDBEngine(connect(address.location or None), **options)
