"""Addresses of stores on PostgreSQL: its own, with options of ours among its parameters."""

from __future__ import annotations

from collections.abc import Container
from urllib.parse import unquote


def parted(address: str, ours: Container[str]) -> tuple[str, dict[str, str]]:
    """What is PostgreSQL's of the address, as it is, and the options that are ours.

    A plus is a plus, as libpq has it, and not a space.

    >>> parted("postgresql://host/db?schema=a%62&password=c+d", {"schema"})
    ('postgresql://host/db?password=c+d', {'schema': 'ab'})
    """
    url, _, query = address.partition("?")
    options: dict[str, str] = {}
    rest = []
    for part in filter(None, query.split("&")):
        name, _, value = map(unquote, part.partition("="))
        if name in ours:
            options.setdefault(name, value)
        else:
            rest.append(part)
    return "?".join([url, "&".join(rest)] if rest else [url]), options
