"""The reading half of a transaction, once as it is and once as `snapshot`, with the binding's names.

A range read is answered in chunks, which are asked for one after another. Each of them may fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .api import KeySelector, KeyValue, StreamingMode
from .futures import Future, Value
from .reading import LAST_KEY, Reading
from .state import State


class Reads:
    def __init__(self, state: State, snapshot: bool) -> None:
        self._reading = Reading(state, snapshot)
        self._state = state
        self._is_snapshot = snapshot

    def __del__(self) -> None:
        """The binding ends a transaction when its snapshot is collected, which the transaction holds on to."""
        if self._is_snapshot:
            self._state.collect()

    def get_read_version(self) -> Future[int]:
        return self._reading.version()

    def get(self, key: bytes) -> Value:
        return self._reading.value(key)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.get_range(key.start, key.stop, reverse=key.step == -1)
        return self.get(key)

    def get_key(self, selector: KeySelector) -> Value:
        return self._reading.key(selector)

    def get_range(
        self,
        begin: bytes | KeySelector | None,
        end: bytes | KeySelector | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> Rows:
        return Rows(
            self, self._reading, b"" if begin is None else begin, LAST_KEY if end is None else end, limit, reverse
        )

    def get_range_startswith(self, prefix: bytes, limit: int = 0, reverse: bool = False) -> Rows:
        return self.get_range(prefix, next_prefix(prefix), limit, reverse)


class Rows:
    """A range read. `first` is its first chunk, which is asked for at once; the others when they are needed."""

    def __init__(
        self,
        reads: Reads,
        reading: Reading,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        limit: int,
        reverse: bool,
    ) -> None:
        self._reads = reads  # which must not be collected before the rows were read
        self._reading = reading
        self._range = begin, end, limit, reverse
        self.first = reading.chunk(begin, end, limit, reverse)

    def to_list(self) -> list[KeyValue]:
        return list(self)

    def __iter__(self) -> Iterator[KeyValue]:
        begin, end, limit, reverse = self._range
        future = self.first
        while True:
            rows, count, more = future.wait()
            yield from rows
            if not more or limit == count:
                return
            limit = limit - count if limit else 0
            begin, end = (begin, rows[-1].key) if reverse else (rows[-1].key + b"\0", end)
            future = self._reading.chunk(begin, end, limit, reverse)


def next_prefix(prefix: bytes) -> bytes:
    """The first key that does not begin with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        raise ValueError("key must contain at least one byte not equal to 0xFF")
    return stripped[:-1] + bytes([stripped[-1] + 1])
