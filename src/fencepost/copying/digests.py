"""A digest of a log: the same for the same events and recorded conditions, whatever engine holds them.

It covers every field of every event in stored form (position, type, tags, data, time, id, metadata) and the recorded
appends. It does not depend on how the log was cut into pages. tests/copying/test_digests.py changes each field and
expects another digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

from ..model import RecordedAppend
from .parts import StoredRow

_encode: Final = msgspec.msgpack.Encoder().encode  # each field carries its length, so no two logs have equal bytes


class LogDigest:
    """The SHA-256 of everything that was added. `copy` starts a second digest from the same beginning."""

    def __init__(self) -> None:
        self._events = sha256()
        self._appends = sha256()

    def add_events(self, rows: Iterable[StoredRow]) -> None:
        self._events.update(b"".join(map(_encode, rows)))

    def add_appends(self, appends: Iterable[RecordedAppend]) -> None:
        for append in appends:
            self._appends.update(_encode((append.first, append.last, append.conditions_json, append.unless_json)))

    def copy(self) -> LogDigest:
        twin = LogDigest()
        twin._events, twin._appends = self._events.copy(), self._appends.copy()
        return twin

    def hexdigest(self) -> str:
        return sha256(self._events.digest() + self._appends.digest()).hexdigest()
