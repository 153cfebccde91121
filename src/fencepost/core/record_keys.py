"""The keys under which engines store records, checkpoints among them.

A checkpoint is a record whose value is a position. What precedes the name in the key keeps records and checkpoints
apart. An engine knows only keys: it stores, returns and lists `Record`s whose names are keys.
tests/unit/test_record_keys.py checks the ranges of keys.
"""

from __future__ import annotations

from typing import Final

from ..model import Record

RECORDS: Final = "records/"
CHECKPOINTS: Final = "checkpoints/"
DELETED: Final = "deleted"  # its revision is the highest that a deleted record had
PAGE_RECORDS: Final = 128  # of at most 64 KiB each

LAST_CODE_POINT: Final = 0x10FFFF


def revision_of(record: Record | None) -> int:
    return 0 if record is None else record.revision


def position_of(checkpoint: Record | None) -> int:
    """The position of the checkpoint that the record holds, 0 if there is none."""
    return 0 if checkpoint is None else int(checkpoint.value)


def named(stored: Record) -> Record:
    """The record as its callers know it: by its name, without what precedes it in the key."""
    return Record(stored.name.removeprefix(RECORDS), stored.value, stored.revision)


def key_range(prefix: str, after: str) -> tuple[str, str]:
    """The range, without its end, of the keys that begin with `prefix` and come after `after`.

    Keys are ordered by code points, which is also the order of their bytes in UTF-8. No key contains NUL, so no key
    lies between a key and the same key followed by U+0001.
    """
    begin = prefix if after < prefix else after + "\1"
    kept = prefix.rstrip(chr(LAST_CODE_POINT))
    next_point = ord(kept[-1]) + 1
    return begin, kept[:-1] + chr(next_point if next_point != 0xD800 else 0xE000)  # surrogates are not in UTF-8
