"""The options of a reader and a writer, checked when the source is created.

Spark passes options as text and ignores names that a source does not know. A misspelled option would then read the
whole log without a warning. So every name and every value is checked on the driver, when the source is created.

An address with a password is refused as an option, because Spark shows options in plans, in its UI and in its event
log. `storeFrom` names a file or environment variable that holds the address. The driver reads it and sends it to the
workers inside the task, which Spark does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from ... import AppendCondition, Query
from ...engine import Address, checked_position, has_secret
from ...errors import InvalidInput
from ..location import local_path
from .places import address_from, address_of

READING: Final = (
    "store",
    "storeFrom",
    "after",
    "upTo",
    "query",
    "types",
    "partitions",
    "data",
    "maxEventsPerTrigger",
    "pushFilters",
    "batchEnds",
)
WRITING: Final = ("store", "storeFrom", "writeId", "condition", "rejected", "staging")
# load(path), save(path), and options of streams.
SPARKS_OWN: Final = ("path", "checkpointLocation", "queryName")
# Properties that Spark itself gives to a table of its catalogue.
OF_TABLES: Final = frozenset(
    ("provider", "owner", "location", "external", "is_managed_location", "comment", "collation")
)
DATA_FORMS: Final = ("binary", "string", "variant")
HEAD: Final = "head"
MAX_PARTITIONS: Final = 100_000
EVERYTHING: Final = Query.all()

_NAMES: Final = {name.lower(): name for name in (*READING, *WRITING, *SPARKS_OWN)}


@dataclass(frozen=True)
class Options:
    """The options as values; None where an option was not given."""

    store: Address
    after: int = 0
    from_head: bool = False  # a stream that starts with the next event that is appended
    up_to: int | None = None
    query: Query = EVERYTHING
    types: frozenset[str] | None = None
    partitions: int | None = None
    data: str | None = None
    max_events: int | None = None
    push_filters: bool = False
    batch_ends: bool = False
    write_id: str | None = None
    condition: AppendCondition | None = None
    rejected: str | None = None
    staging: str | None = None
    checkpoint_location: str | None = None


def parse(given: Mapping[str, str]) -> Options:
    """The options as values; raises `InvalidInput` that names a wrong option."""
    named = {name.lower(): value for name, value in given.items()}
    # For a table of its catalogue, Spark passes some options with a prefix, and some twice.
    named = {name.removeprefix("option."): value for name, value in sorted(named.items(), reverse=True)}
    named = {name: value for name, value in named.items() if name not in OF_TABLES}
    for name in named:
        if name == "lake":
            raise InvalidInput(
                "option 'lake'", "this format reads one store; fencepost.spark.events(..., lake=FOLDER) reads both"
            )
        if name not in _NAMES:
            known = ", ".join(dict.fromkeys((*READING, *WRITING)))
            raise InvalidInput(f"option {name!r}", f"not known; known are {known}")
    after = named.get("after", "0")
    return Options(
        store=_store(named),
        after=0 if after == HEAD else _position(after, "after"),
        from_head=after == HEAD,
        checkpoint_location=named.get("checkpointlocation"),
        **{
            field: convert(named[name.lower()], name)
            for name, (field, convert) in FIELDS.items()
            if name.lower() in named
        },
    )


def _store(named: Mapping[str, str]) -> Address:
    places = [name for name in ("store", "storefrom", "path") if name in named]
    if not places:
        problem = "missing; name the store: .option('store', 'wallet.db')"
        if not named:
            problem += ". Spark passes no options when it reads a table of its catalogue; use CREATE TEMPORARY VIEW"
        raise InvalidInput("option 'store'", problem)
    if len(places) > 1:
        raise InvalidInput("option 'store'", f"given twice, as {' and '.join(_NAMES[name] for name in places)}")
    if places[0] == "storefrom":
        return address_from(named["storefrom"])
    text = _not_empty(named[places[0]], "store")
    if has_secret(text):
        raise InvalidInput(
            "option 'store'",
            "it holds a password or something that may be one, and Spark shows options in plans, UI and logs; put the "
            "address into a file or an environment variable of the driver and name it: "
            ".option('storeFrom', 'file:/run/secrets/store')",
        )
    return address_of(text)


def _position(text: str, name: str) -> int:
    try:
        position = int(text)
    except ValueError:
        raise InvalidInput(f"option '{name}'", f"a position is needed, not {text!r:.80}") from None
    return checked_position(position, f"option '{name}'")


def _count(text: str, name: str, most: int | None = None) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1 or (most is not None and int(text) > most):
        allowed = "a number from 1 on" if most is None else f"a number from 1 to {most}"
        raise InvalidInput(f"option '{name}'", f"{allowed} is needed, not {text!r:.80}")
    return int(text)


def _truth(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"option '{name}'", f"true or false is needed, not {text!r:.80}")
    return text.lower() == "true"


def _from_json(kind: type[Query] | type[AppendCondition], text: str, name: str) -> Query | AppendCondition:
    try:
        return kind.from_json(text)
    except InvalidInput as error:
        problem = f"{error.problem}; give it {kind.__name__}.to_json()"
        raise InvalidInput(f"option '{name}', {error.field}", problem) from None


def _types(text: str, name: str) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"option '{name}'", f"a JSON list of types is needed, not {text!r:.80}: {error}") from None


def _data_form(text: str, name: str) -> str:
    if text not in DATA_FORMS:
        raise InvalidInput(f"option '{name}'", f"one of {', '.join(DATA_FORMS)} is needed, not {text!r:.80}")
    return text


def _folder(text: str, name: str) -> str:
    return str(Path(local_path(_not_empty(text, name), f"option '{name}'")).absolute())


def _not_empty(text: str, name: str) -> str:
    if not text:
        raise InvalidInput(f"option '{name}'", "empty")
    return text


# The field of `Options` for each option, and the function that makes its value from the text and the option's name.
FIELDS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "upTo": ("up_to", _position),
    "query": ("query", partial(_from_json, Query)),
    "types": ("types", _types),
    "partitions": ("partitions", partial(_count, most=MAX_PARTITIONS)),
    "data": ("data", _data_form),
    "maxEventsPerTrigger": ("max_events", _count),
    "pushFilters": ("push_filters", _truth),
    "batchEnds": ("batch_ends", _truth),
    "writeId": ("write_id", _not_empty),
    "condition": ("condition", partial(_from_json, AppendCondition)),
    "rejected": ("rejected", _folder),
    "staging": ("staging", _folder),
}
