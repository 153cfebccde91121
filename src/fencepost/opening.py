"""Opens the store at an address, with the engine for its kind of address.

An engine is imported when it is first used, so the packages that it needs have to be installed only then.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from .address import FOUNDATIONDB, LAKE, MEMORY, POSTGRES, REMOTE, SQLITE, Address, Kind
from .core.engine import Engine
from .store import EventStore

# For each kind of address, the module whose function `open_engine` takes an Address and options.
OPENERS: Final[dict[Kind, str]] = {
    MEMORY: "fencepost.engines.memory",
    SQLITE: "fencepost.engines.sqlite",
    POSTGRES: "fencepost.engines.postgres",
    FOUNDATIONDB: "fencepost.engines.foundationdb",
    LAKE: "fencepost.engines.lake.engine",
    REMOTE: "fencepost.engines.remote",
}


def open(address: str | os.PathLike[str] | Address, **options: Any) -> EventStore:
    """Open the store at the address.

    A path, or `"sqlite:" + path`, names a file, which is created if necessary. `"memory:"` is a new store that ends
    with the process. docs/reference/api.md lists the other kinds of addresses and the options of each engine.
    """
    return EventStore(open_engine(address, **options))


def open_engine(address: str | os.PathLike[str] | Address, **options: Any) -> Engine:
    """The engine alone, for tools that wrap, measure or check it."""
    parsed = Address.parse(address)
    engine: Engine = import_module(OPENERS[parsed.kind]).open_engine(parsed, **options)
    return engine
