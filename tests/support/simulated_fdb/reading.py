"""How a read of a transaction is answered: from what is stored, with the transaction's own writes over it.

A read sees the own writes of the moment at which it began. Its range goes to the read conflict ranges when it is
answered, unless it is a snapshot read.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from .api import KeySelector, KeyValue
from .errors import KEY_OUTSIDE_LEGAL_RANGE, KEY_TOO_LARGE, RANGE_LIMITS_INVALID, FDBError
from .futures import Future, Value
from .mutations import Range
from .own_writes import OwnWrites
from .state import State

KEY_BYTES: Final = 10_000
LAST_KEY: Final = b"\xff"

Chunk: TypeAlias = tuple[list[KeyValue], int, bool]
"""Rows, how many they are, and whether there may be more."""


class Reading:
    def __init__(self, state: State, snapshot: bool) -> None:
        self._state = state
        self._snapshot = snapshot

    def version(self) -> Future[int]:
        return self._state.ask(Future(), self._state.version, snapshot=False, kind="read_version")

    def value(self, key: bytes) -> Value:
        own = self._own_writes()
        return self._state.ask(Value(), lambda: self._value(key, own), snapshot=self._snapshot)

    def key(self, selector: KeySelector) -> Value:
        own = self._own_writes()
        return self._state.ask(Value(), lambda: self._key(selector, own), snapshot=self._snapshot)

    def chunk(self, begin: bytes | KeySelector, end: bytes | KeySelector, limit: int, reverse: bool) -> Future[Chunk]:
        """Ask for the next rows of a range read, as many as one reply holds."""
        own = self._own_writes()
        return self._state.ask(Future(), lambda: self._chunk(begin, end, limit, reverse, own), snapshot=self._snapshot)

    def _own_writes(self) -> OwnWrites | None:
        """The writes that a read which begins now sees; None if it sees none, by option or because there are none."""
        options, own = self._state.options, self._state.own
        sees = options.snapshot_sees_writes if self._snapshot else options.sees_writes
        return own.as_of_now() if sees and own else None

    def _conflict(self, begin: bytes, end: bytes) -> None:
        if not self._snapshot and begin < end:
            self._state.add_read(begin, end)

    def _value(self, key: bytes, own: OwnWrites | None) -> bytes | None:
        if key >= LAST_KEY:
            raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
        if len(key) > KEY_BYTES:
            return None

        def stored() -> bytes | None:
            value = next((found for _, found in self._state.stored(key, key + b"\0", 1, False)), None)
            self._conflict(key, key + b"\0")
            return value

        if own is None:
            return stored()
        own.check_readable(key, key + b"\0")
        return own.value(key, stored)

    def _key(self, selector: KeySelector, own: OwnWrites | None) -> bytes:
        resolved, (begin, end) = self._resolve(selector, own)
        self._conflict(begin, end)
        return resolved

    def _resolve(self, selector: KeySelector, own: OwnWrites | None) -> tuple[bytes, Range]:
        """The key, and the range that had to be looked at to find it."""
        bound = selector.key + b"\0" if selector.or_equal else selector.key
        if selector.offset > 0:
            rows = self._rows(bound, LAST_KEY, selector.offset, False, own)
            key = rows[-1].key if len(rows) == selector.offset else LAST_KEY
            return key, (bound, min(key + b"\0", LAST_KEY))
        count = 1 - selector.offset
        rows = self._rows(b"", bound, count, True, own)
        key = rows[-1].key if len(rows) == count else b""
        return key, (key, bound)

    def _chunk(
        self, begin: bytes | KeySelector, end: bytes | KeySelector, limit: int, reverse: bool, own: OwnWrites | None
    ) -> Chunk:
        if limit < 0:
            raise FDBError(RANGE_LIMITS_INVALID)
        first = self._key(begin, own) if isinstance(begin, KeySelector) else begin
        last = self._key(end, own) if isinstance(end, KeySelector) else end
        if first > last:
            return [], 0, False
        if last > LAST_KEY:
            raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
        most = self._state.rows_per_reply
        most = min(most, limit) if limit else most
        rows = self._rows(first, last, most, reverse, own)
        if len(rows) == most:  # nothing beyond the last row was seen
            self._conflict(*((rows[-1].key, last) if reverse else (first, rows[-1].key + b"\0")))
        else:
            self._conflict(first, last)
        return rows, len(rows), len(rows) == most

    def _rows(self, begin: bytes, end: bytes, limit: int, reverse: bool, own: OwnWrites | None) -> list[KeyValue]:
        if own is None:
            return [KeyValue(*row) for row in self._state.stored(begin, end, limit, reverse)]
        own.check_readable(begin, end)
        found = own.over(dict(self._state.stored(begin, end, 0, reverse)), begin, end)
        return [KeyValue(key, value) for key, value in sorted(found.items(), reverse=reverse)][:limit]


def check_key(key: bytes) -> None:
    if key >= LAST_KEY:
        raise FDBError(KEY_OUTSIDE_LEGAL_RANGE)
    if len(key) > KEY_BYTES:
        raise FDBError(KEY_TOO_LARGE)
