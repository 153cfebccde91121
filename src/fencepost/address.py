"""Which store an address names: parsed once, then passed on as a value.

An `Address` knows the kind of its store, its path or URL, the options that were written in it, and how to print itself
without secrets. No other module looks at the prefix of an address, which tests/tidy/test_addresses.py checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

from .errors import InvalidInput
from .kinds import FOUNDATIONDB, KINDS, LAKE, MEMORY, OBJECT_STORES, POSTGRES, REMOTE, SQLITE, Kind
from .redaction import has_secret, login_of, redacted

__all__ = [
    "FOUNDATIONDB",
    "KINDS",
    "LAKE",
    "MEMORY",
    "POSTGRES",
    "REMOTE",
    "SQLITE",
    "Address",
    "Kind",
    "hadoop_url",
    "object_url",
    "without_options",
]


KNOWN: Final = ", ".join(kind.form for kind in KINDS)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # how Python holds bytes that are not UTF-8
_READ_ONLY: Final = "?mode=ro"
_OBJECT_SCHEMES: Final = tuple(scheme for schemes in OBJECT_STORES.values() for scheme in schemes)
# A bucket, with its account for abfs and abfss, and a prefix: nothing that has to be escaped, and no secrets.
_OBJECTS: Final = re.compile(r"[\w.-]+(?:@[\w.-]+)?(?:/[\w.=+-]+)*/?", re.ASCII)


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
            url = object_url(location, "address") if kind is LAKE else None
            if url is not None:
                text, location = f"{kind.schemes[0]}:{url}", url
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
        if self.kind is LAKE and object_url(self.location, "address") is not None:
            return self
        path = os.path.abspath(self.location)
        scheme = "" if self.kind is SQLITE else f"{self.kind.schemes[0]}:"
        return replace(self, text=f"{scheme}{path}{_READ_ONLY if self.read_only else ''}", location=path)

    def __str__(self) -> str:
        return redacted(self.text)

    def __repr__(self) -> str:
        return f"Address({self})"


def object_url(text: str, name: str) -> str | None:
    """The URL of a prefix in an object store, in its usual form; None if the text is not such a URL.

    Raises `InvalidInput` for a URL that is malformed or holds credentials. `name` is the argument or option.

    >>> object_url("s3a://bucket/lakes/wallet/", "folder"), object_url("data/lake", "folder")
    ('s3://bucket/lakes/wallet', None)
    """
    scheme, slashes, rest = text.partition("://")
    if not slashes or scheme not in _OBJECT_SCHEMES:
        return None
    takes_account = scheme.startswith("abfs")
    parts = rest.rstrip("/").split("/")
    if not _OBJECTS.fullmatch(rest) or ("@" in rest) > takes_account or {".", ".."} & set(parts):
        raise InvalidInput(
            name,
            f"{redacted(text):.80} is not the URL of a prefix in an object store. It is SCHEME://BUCKET/PREFIX, where "
            "a prefix has letters, digits and ._=+-/; credentials are read from the environment",
        )
    return f"{'s3' if scheme == 's3a' else scheme}://{'/'.join(parts)}"


def hadoop_url(url: str) -> str | None:
    """The URL that Hadoop's connector uses for the prefix; None if it needs more than the URL says.

    >>> hadoop_url("s3://bucket/lake"), hadoop_url("az://container/lake")
    ('s3a://bucket/lake', None)
    """
    scheme, _, rest = url.partition("://")
    if scheme == "az":  # its connector wants the account in the URL
        return None
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"


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
    for kind in KINDS:
        if scheme is not None and scheme[1] in kind.schemes and (not kind.is_url or text[scheme.end() :][:2] == "//"):
            if kind is MEMORY and text != "memory:":
                break
            return kind
    if "://" in text:
        raise InvalidInput("address", f"no engine is known for {redacted(text)}; known are {KNOWN}")
    if has_secret(text):
        raise InvalidInput(
            "address",
            f"{redacted(text)} is neither a URL nor the path of a file: a PostgreSQL store is {POSTGRES.form}, "
            "and a file whose name looks like this is ./NAME",
        )
    if scheme is not None and not os.path.lexists(text):
        raise InvalidInput(
            "address", f"no engine is known for {scheme[1]}:; known are {KNOWN}. A file with this name is ./{text}"
        )
    return SQLITE


def _file(path: str, text: str) -> tuple[str, dict[str, str]]:
    """The path, and `mode` if the address ends in `?mode=ro`.

    A question mark may be part of a file's name, so it begins an option only if the address ends in `?mode=...` and no
    file has that very name.
    """
    if path in ("", ":memory:"):  # SQLite does not take these names for a file
        raise InvalidInput("address", f"the path of a file is needed, not {text!r}; a store in memory is 'memory:'")
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
