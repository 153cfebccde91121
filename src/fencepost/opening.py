"""From an address to a store: which engine a URL or path means."""

from __future__ import annotations

import os
from typing import Any

from .errors import InvalidInput
from .store import Engine, EventStore


def open(address: str | os.PathLike[str], **options: Any) -> EventStore:
    """Open the store at the address.

    A path, or `"sqlite:" + path`, is a file, which is made if need be; `"memory:"` is a new store
    that ends with the process; `"postgresql://..."` is a database, and `"fdb:..."` a cluster of
    FoundationDB. Options are those of the engine.
    """
    return EventStore(open_engine(address, **options))


def open_engine(address: str | os.PathLike[str], **options: Any) -> Engine:
    """The engine alone, for tools that go beneath the store."""
    text = os.fspath(address)
    if not isinstance(text, str) or not text:
        raise InvalidInput("address", f"a path or URL is needed, not {address!r}")
    scheme, colon, rest = text.partition(":")
    # Engines are imported here, so that one that is not used need not be installed.
    if text == "memory:":
        from .engines.memory import MemoryEngine

        return MemoryEngine(**options)
    if scheme == "fdb" and colon:
        from .engines.foundationdb import open_foundationdb

        return open_foundationdb(rest, **options)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        from .engines.postgres import PostgresEngine

        return PostgresEngine.from_url(text, **options)
    if scheme == "sqlite" and colon:
        text = rest
    elif "://" in text:
        known = "a path, sqlite:, memory:, postgresql:// and fdb:"
        raise InvalidInput("address", f"no engine is known for {scheme}://; known are {known}")
    from .engines.sqlite import SqliteEngine

    return SqliteEngine(text, **options)
