"""The kinds of stores, and what the rest of the package must know about one before it opens a store.

`KINDS` is the only list of them. A kind says how its addresses look, which options an address may carry, whether
positions have gaps and how wide they are. `fencepost.address` parses addresses into these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of store. Kinds are compared by identity: `address.kind is POSTGRES`."""

    name: str
    schemes: tuple[str, ...]
    form: str  # how its addresses look, for messages
    is_path: bool = False  # what follows the scheme is a path
    is_url: bool = False  # the scheme is followed by //
    has_gaps: bool = False  # two positions may differ by more than the number of events between them
    has_wide_positions: bool = False  # a signed 64-bit integer cannot hold every position
    # The options that an address may carry, each with what turns its text into its value, or raises ValueError.
    options: Mapping[str, Callable[[str], object]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        return _named, (self.name,)


def _yes_or_no(text: str) -> bool:
    return text == "true"


MEMORY: Final = Kind("memory", ("memory",), "memory:")
SQLITE: Final = Kind("SQLite", ("sqlite",), "a path or sqlite:PATH", is_path=True, options={"mode": str})
POSTGRES: Final = Kind(
    "PostgreSQL",
    ("postgresql", "postgres"),
    "postgresql://USER@HOST/DATABASE",
    is_url=True,
    options={
        "schema": str,
        "create": _yes_or_no,
        "connections": int,
        "patience_s": float,
        "record_conditions": _yes_or_no,
    },
)
FOUNDATIONDB: Final = Kind(
    "FoundationDB",
    ("fdb",),
    "fdb:CLUSTER_FILE",
    has_gaps=True,
    has_wide_positions=True,
    options={"namespace": str, "partitions": int, "transaction_bytes": int},
)
LAKE: Final = Kind("lake", ("lake",), "lake:FOLDER", is_path=True)
# A lake may also be a prefix in an object store: lake:s3://BUCKET/PREFIX. The first name of each is its usual one.
OBJECT_STORES: Final = {"S3": ("s3", "s3a"), "Google Cloud Storage": ("gs",), "Azure": ("az", "abfss", "abfs")}
# The store behind a server may be of any kind, so its positions may have gaps and may be wide.
REMOTE: Final = Kind(
    "server",
    ("http", "https"),
    "http://HOST",
    is_url=True,
    has_gaps=True,
    has_wide_positions=True,
    options={"connections": int, "patience_s": float},
)

KINDS: Final = (SQLITE, MEMORY, POSTGRES, FOUNDATIONDB, LAKE, REMOTE)


def _named(name: str) -> Kind:
    """The kind of that name: a copy from another process is the same object."""
    return next(kind for kind in KINDS if kind.name == name)
