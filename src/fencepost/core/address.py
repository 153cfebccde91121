"""Which store an address names: parsed once, then passed on as a value.

An `Address` knows the kind of its store, its path or URL, the options that were written in it, and how to print itself
without secrets. A `Kind` says how the addresses of one engine look and which function opens it. The kinds of the
engines in this package are listed here. Other kinds are found by entry point: a distribution registers a `Kind` in the
group `fencepost.engines` under each of its schemes. No other module looks at the prefix of an address, which
tests/tidy/test_addresses.py checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final
from urllib.parse import unquote

from ..errors import InvalidInput
from .engine import Engine
from .options import check_options, check_patience
from .redaction import has_secret, login_of, redacted

__all__ = [
    "FOUNDATIONDB",
    "KINDS",
    "MEMORY",
    "POSTGRES",
    "SQLITE",
    "Address",
    "Kind",
    "Tables",
    "open_engine",
    "tables_at",
    "without_options",
]

GROUP: Final = "fencepost.engines"  # the group of entry points

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # how Python holds bytes that are not UTF-8
_READ_ONLY: Final = "?mode=ro"


@dataclass(frozen=True, eq=False)
class Kind:
    """What must be known about an engine before it is imported. Compared by identity: `address.kind is POSTGRES`."""

    name: str
    schemes: tuple[str, ...]
    form: str  # how its addresses look, for messages
    opener: str  # "module:function", which takes an Address and options, and returns an Engine
    file_tools: str = ""  # the module with verify, backup and salvage, if the engine offers them
    tables: str | None = None  # "module:function", which takes an Address and returns its Tables
    is_path: bool = False  # what follows the scheme is a path
    is_url: bool = False  # the scheme is followed by //
    has_gaps: bool = False  # two positions may differ by more than the number of events between them
    has_wide_positions: bool = False  # a signed 64-bit integer cannot hold every position
    # The options that an address may carry, each with what turns its text into its value, or raises ValueError.
    options: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    # The usual form of what follows the scheme, for kinds whose locations can be written in several ways.
    normalize: Callable[[str], str] = str

    def __reduce__(self) -> tuple[object, ...]:
        return kind_of_scheme, (self.schemes[0],)


@dataclass(frozen=True)
class Tables:
    """How another program reads a log with SQL: where it connects, and what it selects from.

    `events` has the columns position, recorded_at, id, type, tags, data and metadata. `appends` has the recorded
    appends: first, last, conditions and unless.
    """

    url: str = field(repr=False)  # without the options that only Fencepost knows
    events: str
    appends: str


def _yes_or_no(text: str) -> bool:
    return text == "true"


MEMORY: Final = Kind("memory", ("memory",), "memory:", "fencepost.engines.memory:open_engine")
SQLITE: Final = Kind(
    "SQLite",
    ("sqlite",),
    "a path or sqlite:PATH",
    "fencepost.engines.sqlite:open_engine",
    file_tools="fencepost.engines.sqlite",
    is_path=True,
    options={"mode": str},
)
POSTGRES: Final = Kind(
    "PostgreSQL",
    ("postgresql", "postgres"),
    "postgresql://USER@HOST/DATABASE",
    "fencepost.engines.postgres:open_engine",
    tables="fencepost.engines.postgres:tables_at",
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
    "fencepost.engines.foundationdb:open_engine",
    has_gaps=True,
    has_wide_positions=True,
    options={"namespace": str, "partitions": int, "transaction_bytes": int, "max_transactions": int},
)

KINDS: Final = (SQLITE, MEMORY, POSTGRES, FOUNDATIONDB)  # the engines of this package


@cache
def kind_of_scheme(scheme: str) -> Kind | None:
    """The kind of store whose addresses begin with the scheme; None if no installed engine knows it."""
    for kind in KINDS:
        if scheme in kind.schemes:
            return kind
    for entry in entry_points(group=GROUP, name=scheme):
        found = entry.load()
        if not isinstance(found, Kind):
            raise TypeError(f"the entry point {entry.value!r} of {GROUP} is {type(found).__name__}, not a Kind")
        return found
    return None


def _known() -> str:
    """The forms of the addresses of all installed engines, for messages."""
    others = {entry.load().form: None for entry in entry_points(group=GROUP)}
    return ", ".join([*(kind.form for kind in KINDS), *others])


@dataclass(frozen=True)
class Address:
    """The address of a store. `str()` and `repr()` show it without secrets; `text` is the whole of it."""

    kind: Kind
    text: str = field(repr=False)
    location: str = field(default="", repr=False)  # a path or URL, without what is meant for Fencepost alone
    options: Mapping[str, object] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, given: str | os.PathLike[str] | Address) -> Address:
        """The address that the text means, or `InvalidInput`. A `pathlib.Path` always means an SQLite file.

        >>> Address.parse("wallet.db?mode=ro")
        Address(wallet.db?mode=ro)
        >>> Address.parse("postgresql://ada:secret@db/wallet?schema=eu").options
        {'schema': 'eu'}
        """
        if isinstance(given, Address):
            return given
        text = os.fspath(given)
        if not isinstance(text, str) or not text:
            raise InvalidInput("address", f"a path or URL is needed, not an empty one or {type(text).__name__}")
        if not isinstance(given, str):
            return cls(SQLITE, text, _checked_path(text))
        kind = _kind_of(text)
        if kind.is_url:
            location, written = without_options(text, kind.options)
        else:
            rest = text.removeprefix(f"{kind.schemes[0]}:")
            location, written = _file(rest, text) if kind is SQLITE else _parted(rest, kind)
            usual = kind.normalize(location)
            if usual != location:
                text, location = f"{kind.schemes[0]}:{usual}", usual
        return cls(kind, text, location, _values(kind, written))

    @property
    def path(self) -> str:
        """The path of a file or folder."""
        assert self.kind.is_path, f"{self.kind.name} has no path"
        return self.location

    @property
    def read_only(self) -> bool:
        """Whether the address ends in `?mode=ro`."""
        return "mode" in self.options

    @property
    def has_secret(self) -> bool:
        return has_secret(self.text)

    def absolute(self) -> Address:
        """The same store in a process with another working directory."""
        if not self.kind.is_path or os.path.isabs(self.location):
            return self
        if self.kind is not SQLITE and "://" in self.location:
            return self
        path = os.path.abspath(self.location)
        scheme = "" if self.kind is SQLITE else f"{self.kind.schemes[0]}:"
        return replace(self, text=f"{scheme}{path}{_READ_ONLY if self.read_only else ''}", location=path)

    def __str__(self) -> str:
        return redacted(self.text)

    def __repr__(self) -> str:
        return f"Address({self})"


def without_options(url: str, names: Container[str]) -> tuple[str, dict[str, str]]:
    """The URL without the named parameters, and those parameters with their values.

    As libpq reads a URL: a plus means a plus, not a space, and a question mark in a password does not begin the
    parameters.

    >>> without_options("postgresql://host/db?schema=a%62&password=c+d", {"schema"})
    ('postgresql://host/db?password=c+d', {'schema': 'ab'})
    """
    scheme, slashes, rest = url.partition("://")
    login, place = login_of(rest)
    before = scheme + slashes + ("" if login is None else f"{login}@")
    path, _, query = place.partition("?")
    taken: dict[str, str] = {}
    others = []
    for part in filter(None, query.split("&")):
        name, _, value = map(unquote, part.partition("="))
        if name in names:
            taken.setdefault(name, value)
        else:
            others.append(part)
    return before + "?".join([path, "&".join(others)] if others else [path]), taken


def _kind_of(text: str) -> Kind:
    scheme = _SCHEME.match(text)
    kind = None if scheme is None else kind_of_scheme(scheme[1])
    if kind is not None and scheme is not None:
        follows = not kind.is_url or text[scheme.end() :][:2] == "//"
        if follows and (kind is not MEMORY or text == "memory:"):
            return kind
    if "://" in text:
        raise InvalidInput("address", f"no engine is known for {redacted(text)}; known are {_known()}")
    if has_secret(text):
        raise InvalidInput(
            "address",
            f"{redacted(text)} is neither a URL nor the path of a file: a PostgreSQL store is {POSTGRES.form}, "
            "and a file whose name looks like this is ./NAME",
        )
    if scheme is not None and not os.path.lexists(text):
        raise InvalidInput(
            "address", f"no engine is known for {scheme[1]}:; known are {_known()}. A file with this name is ./{text}"
        )
    return SQLITE


def _file(path: str, text: str) -> tuple[str, dict[str, str]]:
    """The path, and `mode` if the address ends in `?mode=ro`.

    A question mark may be part of a file's name, so it begins an option only if the address ends in `?mode=...` and no
    file has that very name.
    """
    if path in ("", ":memory:"):  # SQLite does not take these names for a file
        raise InvalidInput("address", f"the path of a file is needed, not {text!r}; a store in memory is 'memory:'")
    if "://" in path and not os.path.lexists(path):
        raise InvalidInput("address", f"{redacted(text)}: a path follows sqlite:, not a URL; leave out the sqlite:")
    _checked_path(path)
    name, mark, mode = path.rpartition("?mode=")
    if not mark or os.path.lexists(path):
        return path, {}
    if mode != "ro":
        raise InvalidInput("address", f"mode={mode}: the only mode is ro, for reading alone; leave it out to write")
    if not name:
        raise InvalidInput("address", f"a path is needed before ?mode=ro, not {text!r}")
    return name, {"mode": mode}


def _checked_path(path: str) -> str:
    if not path.isascii() and _SURROGATE.search(path):
        raise InvalidInput("address", f"{redacted(path)}: the path is not UTF-8, which SQLite needs")
    return path


def _parted(rest: str, kind: Kind) -> tuple[str, dict[str, str]]:
    """What precedes the question mark, and the options after it. A kind without options has no question mark."""
    if not kind.options:
        return rest, {}
    location, _, query = rest.partition("?")
    options = {}
    for part in filter(None, query.split("&")):
        name, _, value = map(unquote, part.partition("="))
        if name not in kind.options:
            known = ", ".join(sorted(kind.options))
            raise InvalidInput("address", f"unknown option {redacted(name)!r}; known for {kind.name} are {known}")
        options[name] = value
    return location, options


def _values(kind: Kind, written: Mapping[str, str]) -> dict[str, object]:
    values = {}
    for name, text in written.items():
        try:
            values[name] = kind.options[name](text)
        except ValueError:
            raise InvalidInput(name, f"{text!r} is not a number") from None
    return values


def tables_at(address: Address) -> Tables:
    """The tables of the store at the address, for programs that read them with a driver of their own."""
    if address.kind.tables is None:
        raise InvalidInput("address", f"{address}: a store of the kind {address.kind.name} has no tables to read")
    module, _, function = address.kind.tables.partition(":")
    tables: Tables = getattr(import_module(module), function)(address)
    return tables


def open_engine(address: str | os.PathLike[str] | Address, **options: Any) -> Engine:
    """Open the engine alone, for tools that wrap, measure or check it. Its module is imported only now."""
    parsed = Address.parse(address).absolute()  # a lake or file stays the same after a change of directory
    module, _, function = parsed.kind.opener.partition(":")
    opener: Callable[..., Engine] = getattr(import_module(module), function)
    if options:
        check_options(options, opener, parsed.kind.name)
    check_patience({**parsed.options, **options})
    return opener(parsed, **options)
