"""Stores on FoundationDB, for logs that outgrow one machine.

Appends that have nothing to do with each other commit in parallel, on any number of machines;
those that do are told apart by the database's own conflict detection, exactly, because it is
given the buckets of the conflict kernel as keys. In this order:

    binding       what is used of FoundationDB's Python binding, and loading it
    transactions  steps that wait for futures, range reads, and a call's tries
    layout        where everything is, positions as versionstamps, buckets as conflict keys, events as bytes
    postings      sorted streams of positions: postings, their unions and intersections
    pages         the head, and reading the log in pages, merged from its partitions
    judgement     the verdict on an append as far as the past decides it, and the conflict keys that it reads
    draft         what an append writes, worked out once, and whether it fits into a transaction
    appender      one append, with all its tries, and the tokens that tell a later try that an earlier one was stored
    observations  what observers are told
    engine        the engine: everything that a store asks for, and waiting for a new head

tests/foundationdb runs all of it on `tests.support.simulated_fdb`, or on a real cluster.
"""

from __future__ import annotations

from typing import Any, Unpack

from ...core.address import Address
from ...core.engine import Engine
from ...core.options import FoundationDBOptions
from ...errors import InvalidInput, StoreUnavailable


def open_engine(address: Address, **options: Unpack[FoundationDBOptions]) -> Engine:
    """The engine for `<cluster file>?namespace=<name>`, both parts being optional.

    Without a cluster file FoundationDB's default one is used.
    """
    given: dict[str, Any] = {**address.options, **options}
    if given.pop("record_conditions", False):
        raise InvalidInput("record_conditions", "FoundationDB's engine does not keep the conditions of appends")
    try:
        from .binding import connect
        from .engine import FoundationDBEngine
    except ModuleNotFoundError as error:
        raise StoreUnavailable(
            "FoundationDB's Python binding is not installed: pip install 'fencepost[foundationdb]'"
        ) from error
    return FoundationDBEngine(connect(address.location or None), **given)
