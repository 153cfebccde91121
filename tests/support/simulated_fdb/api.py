"""The small things of the binding's API: key selectors, rows as key and value, options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

TRANSACTION_BYTES: Final = 10_000_000


class StreamingMode:
    """A hint that changes nothing here."""

    want_all = -2
    iterator = -1
    exact = 1


class KeyValue(NamedTuple):
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class KeySelector:
    """The key that is `offset` keys away from the last one below `key`, or at it if `or_equal`."""

    key: bytes
    or_equal: bool
    offset: int

    def __add__(self, offset: int) -> KeySelector:
        return KeySelector(self.key, self.or_equal, self.offset + offset)

    def __sub__(self, offset: int) -> KeySelector:
        return KeySelector(self.key, self.or_equal, self.offset - offset)

    @classmethod
    def last_less_than(cls, key: bytes) -> KeySelector:
        return cls(key, False, 0)

    @classmethod
    def last_less_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, True, 0)

    @classmethod
    def first_greater_than(cls, key: bytes) -> KeySelector:
        return cls(key, True, 1)

    @classmethod
    def first_greater_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, False, 1)


class Options:
    """The transaction options that a layer sets."""

    def __init__(self) -> None:
        self.snapshot_sees_writes = True
        self.sees_writes = True
        self.next_write_conflicts = True
        self.size_limit = TRANSACTION_BYTES
        self.retry_limit = -1
        self.timeout_ms = 0
        self.max_retry_delay_ms = 1_000

    def set_snapshot_ryw_disable(self) -> None:
        self.snapshot_sees_writes = False

    def set_read_your_writes_disable(self) -> None:
        self.sees_writes = self.snapshot_sees_writes = False

    def set_next_write_no_write_conflict_range(self) -> None:
        self.next_write_conflicts = False

    def set_size_limit(self, size_bytes: int) -> None:
        self.size_limit = size_bytes

    def set_retry_limit(self, retries: int) -> None:
        self.retry_limit = retries

    def set_timeout(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def set_max_retry_delay(self, delay_ms: int) -> None:
        self.max_retry_delay_ms = delay_ms


def lasting(options: Options) -> Options:
    """Those that outlast a retry, from API version 610 on."""
    kept = Options()
    kept.retry_limit, kept.timeout_ms = options.retry_limit, options.timeout_ms
    kept.max_retry_delay_ms = options.max_retry_delay_ms
    return kept
