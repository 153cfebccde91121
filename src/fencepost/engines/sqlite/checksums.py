"""Checksums of events, recorded appends and checkpoints.

A row is encoded as a MessagePack array of its columns, each in the shortest form. The last column is the checksum:
an integer of 2**32 or more, so that MessagePack writes eight bytes. The last four of them are the CRC-32 of all
bytes before them, the lowest byte first. A CRC that has read its own value always ends in the same state, RESIDUE,
and every row is computed from that state. So any number of sound rows, one after another, ends in RESIDUE too: one
call encodes a page of rows and one call checks it. After a damaged row the state differs, and sound rows cannot
bring it back.

Format 1 had another checksum, below 2**32, for events only. Its rows are still checked by that definition.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from . import sizes

RESIDUE: Final = 0x2144DF1C
MARK: Final = 1 << 32  # MessagePack writes a number of this size in eight bytes, of which the last four are the CRC

CHECKPOINT: Final = "checkpoint"  # comes before the columns, so that a row cannot pass for one of another table
APPEND: Final = "append"

WHAT_TO_DO: Final = "`fencepost verify` shows what is damaged, `fencepost salvage` saves the rest"

FEW_ROWS: Final = 4  # with fewer, one call for each row is faster than an array of checksums

_encode = msgspec.msgpack.Encoder().encode


def checksum(*columns: Any) -> int:
    """The checksum of a row with these columns."""
    number = crc32(_encode((*columns, MARK))[:-4], RESIDUE)
    return MARK | int.from_bytes(number.to_bytes(4, "little"), "big")


def with_checksums(rows: list[Any]) -> list[Any]:
    """The rows, each with its checksum as the last column."""
    if len(rows) < FEW_ROWS:
        return [(*row, checksum(*row)) for row in rows]
    sums = array("I", [crc32(_encode((*row, MARK))[:-4], RESIDUE) for row in rows])
    sums.byteswap()
    return [(*row, MARK | sum) for row, sum in zip(rows, sums, strict=True)]


def are_sound(rows: list[Any]) -> bool:
    """Whether the checksum of every row, its last column, holds."""
    for start in range(0, len(rows), sizes.CRC_ROWS):
        some = rows[start : start + sizes.CRC_ROWS]
        header = 1 if len(some) < 16 else 3
        if crc32(memoryview(_encode(some))[header:], RESIDUE) != RESIDUE:
            return all(map(is_sound, some)) and are_sound(rows[start + sizes.CRC_ROWS :])  # some may be of format 1
    return True


def is_sound(row: Sequence[Any]) -> bool:
    """Whether the checksum of an event's row holds."""
    return crc32(_encode(row), RESIDUE) == RESIDUE or _is_sound_1(*row)


def is_sound_as(kind: str, row: Sequence[Any]) -> bool:
    """Whether the checksum of an AppendRow (`APPEND`) or a CheckpointRow (`CHECKPOINT`) holds."""
    return crc32(_encode((kind, *row)), RESIDUE) == RESIDUE


def _is_sound_1(
    position: int, type: Any, tags: Any, data: Any, recorded_at: Any, id: Any, metadata: Any, checksum: Any
) -> bool:
    """Whether the checksum of format 1 holds: fields, which cannot contain NUL, each followed by NUL; then the data."""
    if not isinstance(data, bytes) or not isinstance(id, bytes | None) or not isinstance(metadata, str | None):
        return False
    rest = f"{position}\0{type}\0{tags}\0{recorded_at}\0{id.hex() if id else ''}\0{metadata or ''}\0"
    return bool(crc32(data, crc32(rest.encode())) == checksum)
