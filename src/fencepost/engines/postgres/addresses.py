"""Addresses of PostgreSQL databases, as libpq parses them: checked, and never repeated with a password in an error."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import psycopg

from ...core.redaction import is_ambiguous, redacted
from ...errors import InvalidInput

ENCODE: Final = "in a user or password, write @ as %40, / as %2F, ? as %3F and % as %25"
_PORTS: Final = re.compile(r"[0-9]*(,[0-9]*)*")


def parameters_of(url: str) -> dict[str, Any]:
    """The parameters in the URL or connection string; raises `InvalidInput` if it is ambiguous or malformed.

    libpq's own errors quote the address, or a part of the password that libpq took for another component. So they are
    neither repeated nor chained, and an address with two possible meanings is refused before it is used.
    """
    parameters = None
    if not is_ambiguous(url.partition("://")[2]):
        with suppress(psycopg.Error, UnicodeError):
            parameters = psycopg.conninfo.conninfo_to_dict(url)
    if parameters is None or not _PORTS.fullmatch(str(parameters.get("port") or "")):
        raise InvalidInput("address", f"{redacted(url)} is not a valid address of PostgreSQL; {ENCODE}")
    return parameters
