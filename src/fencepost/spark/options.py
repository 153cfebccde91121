"""What a reader and a writer can be told, checked before anything runs.

Spark hands options over as text and passes over names that a source does not know, so a typo
would read the whole log in silence. Here every name and every value is checked when the source is
made, on the driver.

An address with a password in it is refused as an option: Spark shows options in plans, in its
UI and in its event log. `storeFrom` says where the address is to be had instead; it is looked up
on the driver and goes to the workers inside of the task, which Spark shows to nobody.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ..errors import InvalidInput
from ..model import AppendCondition, Query, checked_position

READING: Final = (
    "store",
    "storeFrom",
    "after",
    "upTo",
    "query",
    "partitions",
    "data",
    "maxEventsPerTrigger",
    "pushFilters",
)
WRITING: Final = ("store", "storeFrom", "writeId", "condition", "rejected", "staging")
SPARKS_OWN: Final = ("path", "checkpointLocation", "queryName")  # .load(path), .save(path), and what streams are told
DATA_FORMS: Final = ("binary", "string", "variant")
HEAD: Final = "head"
MAX_PARTITIONS: Final = 100_000
EVERYTHING: Final = Query.all()

_NAMES: Final = {name.lower(): name for name in (*READING, *WRITING, *SPARKS_OWN)}


@dataclass(frozen=True)
class Options:
    """All of them, with their meaning; None where nothing was said."""

    store: str
    after: int = 0
    from_head: bool = False  # a stream that begins with what is appended next
    upto: int | None = None
    query: Query = EVERYTHING
    partitions: int | None = None
    data: str | None = None
    max_events: int | None = None
    push_filters: bool = False
    write_id: str | None = None
    condition: AppendCondition | None = None
    rejected: str | None = None
    staging: str | None = None
    checkpoint_location: str | None = None


def parse(given: Mapping[str, str]) -> Options:
    """The options, or `InvalidInput` naming the one that is wrong."""
    named = {name.lower(): value for name, value in given.items()}
    for name in named:
        if name not in _NAMES:
            known = ", ".join(dict.fromkeys((*READING, *WRITING)))
            raise InvalidInput(f"option {name!r}", f"not known; known are {known}")
    after = named.get("after", "0")
    return Options(
        store=_store(named),
        after=0 if after == HEAD else _position(after, "after"),
        from_head=after == HEAD,
        upto=_position(named["upto"], "upTo") if "upto" in named else None,
        query=_query(named["query"]) if "query" in named else Query.all(),
        partitions=_count(named["partitions"], "partitions", MAX_PARTITIONS) if "partitions" in named else None,
        data=_data_form(named["data"]) if "data" in named else None,
        max_events=_count(named["maxeventspertrigger"], "maxEventsPerTrigger")
        if "maxeventspertrigger" in named
        else None,
        push_filters=_truth(named["pushfilters"], "pushFilters") if "pushfilters" in named else False,
        write_id=_not_empty(named["writeid"], "writeId") if "writeid" in named else None,
        condition=_condition(named["condition"]) if "condition" in named else None,
        rejected=_folder(named["rejected"], "rejected") if "rejected" in named else None,
        staging=_folder(named["staging"], "staging") if "staging" in named else None,
        checkpoint_location=named.get("checkpointlocation"),
    )


def _store(named: Mapping[str, str]) -> str:
    places = [name for name in ("store", "storefrom", "path") if name in named]
    if not places:
        raise InvalidInput("option 'store'", "missing; say which store: .option('store', 'wallet.db')")
    if len(places) > 1:
        raise InvalidInput("option 'store'", f"given twice, as {' and '.join(_NAMES[name] for name in places)}")
    if places[0] == "storefrom":
        return address_from(named["storefrom"])
    address = named[places[0]]
    if has_password(address):
        raise InvalidInput(
            "option 'store'",
            "it holds a password, and Spark shows options in plans, UI and logs; put the address into a file or an "
            "environment variable of the driver and name that: .option('storeFrom', 'file:/run/secrets/store')",
        )
    return absolute(_not_empty(address, "store"))


def address_from(place: str) -> str:
    """The address that a file or an environment variable of this process holds."""
    kind, _, name = place.partition(":")
    if kind == "env" and name:
        address = os.environ.get(name, "")
        problem = f"there is no environment variable {name} where Spark's driver runs"
    elif kind == "file" and name:
        try:
            address = Path(name).read_text().strip()
            problem = f"{name} is empty"
        except OSError as error:
            address, problem = "", f"{name}: {error.strerror}"
    else:
        raise InvalidInput("option 'storeFrom'", "file:PATH or env:NAME is needed")
    if not address:
        raise InvalidInput("option 'storeFrom'", problem)
    return absolute(address)


def has_password(address: str) -> bool:
    """
    >>> has_password("postgresql://ada:secret@db/wallet"), has_password("postgresql://ada@db/wallet")
    (True, False)
    """
    if "://" not in address:
        return False
    parts = urlsplit(address)
    return bool(parts.password) or any("password" in name.lower() for name in parse_qs(parts.query))


def absolute(address: str) -> str:
    """A file's address that means the same file in every process."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme in ("sqlite", "lake"):
        return f"{scheme}:{Path(rest).absolute()}"
    if address == "memory:" or "://" in address or (colon and scheme == "fdb"):
        return address
    return str(Path(address).absolute())


def _position(text: str, name: str) -> int:
    try:
        return checked_position(int(text), f"option '{name}'")
    except InvalidInput:
        raise
    except ValueError:
        raise InvalidInput(f"option '{name}'", f"a position is needed, not {text!r:.80}") from None


def _count(text: str, name: str, most: int | None = None) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1 or (most is not None and int(text) > most):
        allowed = "a number from 1 on" if most is None else f"a number from 1 to {most}"
        raise InvalidInput(f"option '{name}'", f"{allowed} is needed, not {text!r:.80}")
    return int(text)


def _truth(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"option '{name}'", f"true or false is needed, not {text!r:.80}")
    return text.lower() == "true"


def _query(text: str) -> Query:
    try:
        return Query.from_json(text)
    except InvalidInput as error:
        raise InvalidInput(f"option 'query', {error.field}", f"{error.problem}; give it Query.to_json()") from None


def _condition(text: str) -> AppendCondition:
    try:
        return AppendCondition.from_json(text)
    except InvalidInput as error:
        problem = f"{error.problem}; give it AppendCondition.to_json()"
        raise InvalidInput(f"option 'condition', {error.field}", problem) from None


def _data_form(text: str) -> str:
    if text not in DATA_FORMS:
        raise InvalidInput("option 'data'", f"one of {', '.join(DATA_FORMS)} is needed, not {text!r:.80}")
    return text


def _folder(text: str, name: str) -> str:
    return str(Path(_not_empty(text, name).removeprefix("file:")).absolute())


def _not_empty(text: str, name: str) -> str:
    if not text:
        raise InvalidInput(f"option '{name}'", "empty")
    return text
