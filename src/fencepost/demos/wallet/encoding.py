"""JSON for answers, with integers of any size: a balance may grow beyond 64 bits, which is where msgspec stops."""

from __future__ import annotations

import json

import msgspec

_encode = msgspec.json.Encoder().encode


def encode(body: object) -> bytes:
    """
    >>> encode({"balance": 2**64})
    b'{"balance":18446744073709551616}'
    """
    try:
        return _encode(body)
    except OverflowError:
        return json.dumps(msgspec.to_builtins(body), separators=(",", ":"), ensure_ascii=False).encode()
