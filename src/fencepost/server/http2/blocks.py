"""Blocks of headers: decoded with `hpack`, and remembered.

A client sends the same headers with each call, and refers to them by their number in a table that it filled with its
first call. So the bytes of a block are the same as before, as long as the table has not changed. Decoding a block takes
`hpack` longer than the rest of a small call, so blocks that did not change the table are remembered until one does.
tests/server/test_http2.py compares remembered blocks with decoded ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from hpack import Decoder, HPACKError
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from .frames import COMPRESSION_ERROR, Violation

MAX_HEADERS_BYTES: Final = 16_384  # decoded
MOST_REMEMBERED: Final = 32
LONGEST_REMEMBERED: Final = 1_024


class Head(NamedTuple):
    """The headers of a request. A name that is there several times keeps its last value."""

    method: str
    path: str
    headers: dict[str, str]


class _WatchedTable(HeaderTable):
    """Counts the entries that are added."""

    added = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.added += 1
        super().add(name, value)


class Blocks:
    """The decoder of one connection."""

    def __init__(self) -> None:
        self._table = _WatchedTable()
        self._decoder = Decoder(MAX_HEADERS_BYTES)
        self._decoder.header_table = self._table
        self._remembered: dict[bytes, Head] = {}

    def decode(self, block: bytes) -> Head:
        known = self._remembered.get(block)
        if known is not None:
            return known
        added = self._table.added
        try:
            fields = self._decoder.decode(block)
        except (HPACKError, IndexError) as error:
            raise Violation(COMPRESSION_ERROR, f"the headers cannot be decoded: {type(error).__name__}") from None
        headers = {str(name): str(value) for name, value in fields}
        made = Head(headers.get(":method", ""), headers.get(":path", ""), headers)
        # A new size of the table, which may drop entries, can only be at the beginning of a block.
        if self._table.added != added or (block and block[0] & 0xE0 == 0x20):
            self._remembered.clear()
        elif len(block) <= LONGEST_REMEMBERED and len(self._remembered) < MOST_REMEMBERED:
            self._remembered[block] = made
        return made


def block_of(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The fields as literals, which need no table at the other side.

    >>> block_of([(b"grpc-status", b"0")])
    b'\\x00\\x0bgrpc-status\\x010'
    """
    block = bytearray()
    for name, value in fields:
        block += b"\x00" + encode_integer(len(name), 7) + name + encode_integer(len(value), 7) + value
    return bytes(block)


STATUS_200: Final = b"\x88"  # the 8th entry of the table that every decoder has
