"""The options of `fencepost.open`, for each kind of store: their names and types.

Type checkers find these classes in the overloads of `open`. `open_engine` finds them in the signature of the function
that opens an engine, and refuses an option that the signature does not name. tests/unit/test_address.py checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from inspect import Parameter, signature
from typing import Final, TypedDict, Unpack, cast, get_args, get_origin

from ..errors import InvalidInput

MAX_PATIENCE_S: Final = 86_400


class MemoryOptions(TypedDict, total=False):
    create: bool
    record_conditions: bool


class SqliteOptions(TypedDict, total=False):
    create: bool
    read_only: bool
    patience_s: float
    record_conditions: bool
    vfs: str | None


class PostgresOptions(TypedDict, total=False):
    schema: str
    create: bool
    connections: int
    patience_s: float
    listen_url: str | None
    record_conditions: bool


class FoundationDBOptions(TypedDict, total=False):
    namespace: str
    partitions: int | None
    transaction_bytes: int
    max_transactions: int
    record_conditions: bool


class RemoteOptions(TypedDict, total=False):
    key: str | None
    ca_file: str | None
    client_certificate: str | None
    client_key: str | None
    insecure: bool
    connections: int
    patience_s: float


def check_options(given: Mapping[str, object], opener: Callable[..., object], kind: str) -> None:
    """Raise `InvalidInput` for an option that the opener of an engine does not take."""
    known = _names_of(opener)
    unknown = sorted(given.keys() - known) if known is not None else []
    if unknown and known is not None:
        listed = f"its options are {', '.join(sorted(known))}" if known else "it has no options"
        raise InvalidInput(unknown[0], f"a store of the kind {kind} does not have this option; {listed}")


def check_patience(options: Mapping[str, object]) -> None:
    """Raise `InvalidInput` for a time that an engine or its driver cannot wait. The address may name it as well."""
    patience_s = options.get("patience_s", 0)
    if type(patience_s) not in (int, float) or not 0 <= cast(float, patience_s) <= MAX_PATIENCE_S:
        raise InvalidInput("patience_s", f"seconds from 0 to {MAX_PATIENCE_S:,} are needed, not {patience_s!r}")


def _names_of(opener: Callable[..., object]) -> AbstractSet[str] | None:
    """The options that the signature of an opener names, one by one or as `Unpack[...]`; None if it takes any."""
    parameters = list(signature(opener, eval_str=True).parameters.values())[1:]  # without the address
    for parameter in parameters:
        if parameter.kind is Parameter.VAR_KEYWORD:
            hint = parameter.annotation
            return get_args(hint)[0].__annotations__.keys() if get_origin(hint) is Unpack else None
    return {parameter.name for parameter in parameters}
