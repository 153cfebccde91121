"""A store behind a Fencepost server: `fencepost.open("http://host:port")`.

The entry points `http` and `https` of the group `fencepost.engines` name `REMOTE`.

engine      the `Engine` protocol over the server's HTTP interface
transport   pooled connections, time limits, and what is known about a request that got no answer
"""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ...engine import Address, Kind
from ...errors import InvalidInput
from .engine import RemoteEngine
from .transport import Transport, tls_context

KEY_VARIABLE: Final = "FENCEPOST_API_KEY"

__all__ = ["REMOTE", "RemoteEngine", "connect", "open_engine"]

# The store behind a server may be of any kind, so its positions may have gaps and may be wide.
REMOTE: Final = Kind(
    "server",
    ("http", "https"),
    "http://HOST",
    "fencepost.server.remote:open_engine",
    is_url=True,
    has_gaps=True,
    has_wide_positions=True,
    options={"connections": int, "patience_s": float},
)


def open_engine(address: Address, **options: Any) -> RemoteEngine:
    """Options that are given take precedence over those in the address."""
    return connect(address, **{**address.options, **options})


def connect(
    address: Address,
    *,
    key: str | None = None,
    ca_file: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    insecure: bool = False,
    connections: int = 8,
    patience_s: float = 10.0,
    **options: Any,
) -> RemoteEngine:
    """Connect to the server at the address.

    `key` is the API key; without one, the user part of the URL is taken, else the environment variable
    FENCEPOST_API_KEY. A key is sent over https, or to this machine; `insecure=True` sends it over http to others,
    too. `ca_file` names the certificates to trust, `client_certificate` and `client_key` what to show to a server
    that asks for a certificate. `connections` is the largest number of connections at a time. A server that does not
    answer is tried again for `patience_s` seconds.
    """
    if options:
        raise InvalidInput(min(options), "a store behind a server does not have this option; the server decides it")
    if connections < 1:
        raise InvalidInput("connections", f"at least 1 is needed, not {connections}")
    parts = urlsplit(address.location)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput("address", f"{address}: the port is not a number from 0 to 65535") from None
    if not host or parts.query or parts.fragment:
        raise InvalidInput("address", f"{address}: http://HOST:PORT is needed, without parameters")
    in_address = unquote(parts.username) if parts.username else None
    transport = Transport(
        host,
        port,
        tls=tls_context(ca_file, client_certificate, client_key) if parts.scheme == "https" else None,
        path=parts.path.rstrip("/"),
        key=key or in_address or os.environ.get(KEY_VARIABLE),
        insecure=insecure,
        most=connections,
    )
    return RemoteEngine(transport, patience_s=patience_s)
