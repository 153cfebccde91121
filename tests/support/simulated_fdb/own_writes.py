"""The writes that a transaction has not committed yet, as its own reads and conflict ranges see them.

A read sees these writes over what is stored. What a versionstamp will complete cannot be read. A read conflict on a key
whose value these writes alone settle is a read of the transaction's own write, so the client drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import ACCESSED_UNREADABLE, FDBError
from .mutations import OPERATIONS, Mutation, Range


class OwnWrites:
    def __init__(self) -> None:
        self.mutations: list[Mutation] = []
        self._unreadable: list[Range] = []

    def __bool__(self) -> bool:
        return bool(self.mutations)

    def as_of_now(self) -> OwnWrites:
        """What a read that begins now sees, whatever is written before it is answered."""
        copy = OwnWrites()
        copy.mutations, copy._unreadable = list(self.mutations), list(self._unreadable)
        return copy

    def add(self, mutation: Mutation, unreadable: Range | None = None) -> None:
        self.mutations.append(mutation)
        if unreadable is not None:
            self._unreadable.append(unreadable)
        if mutation.name == "clear_range":
            begin, end = mutation.key, mutation.param
            self._unreadable = [r for r in self._unreadable if not (begin <= r[0] and r[1] <= end)]

    def check_readable(self, begin: bytes, end: bytes) -> None:
        if any(first < end and begin < last for first, last in self._unreadable):
            raise FDBError(ACCESSED_UNREADABLE)

    def value(self, key: bytes, stored: Callable[[], bytes | None]) -> bytes | None:
        """The key's value. `stored` is called only if these writes do not settle it."""
        own = [mutation for mutation in self.mutations if mutation.touches(key)]
        while any(mutation.name in ("set", "clear_range") for mutation in own[1:]):
            own.pop(0)  # what was there before a set does not matter
        settled = bool(own) and own[0].name in ("set", "clear_range")
        value = None if settled else stored()
        for mutation in own:
            value = mutation.applied(value)
        return value

    def over(self, stored: dict[bytes, bytes], begin: bytes, end: bytes) -> dict[bytes, bytes]:
        """The rows of a range: those stored, with these writes over them."""
        found: dict[bytes, bytes | None] = dict(stored)
        for mutation in self.mutations:
            if mutation.name == "clear_range":
                found = {key: value for key, value in found.items() if not mutation.touches(key)}
            elif begin <= mutation.key < end and mutation.name in OPERATIONS:
                found[mutation.key] = mutation.applied(found.get(mutation.key))
        return {key: value for key, value in found.items() if value is not None}

    def unsettled(self, begin: bytes, end: bytes) -> Iterator[Range]:
        """The parts of a range whose values these writes alone do not settle.

        The first write to a key decides: an atomic operation depends on what is stored, a set or a clear does not. A
        versionstamped value settles its key in any case.
        """
        settled: list[Range] = []
        dependent: set[bytes] = set()
        for mutation in self.mutations:
            if mutation.name == "clear_range":
                settled.append((mutation.key, mutation.param))
            elif mutation.name == "set_versionstamped_value" or (
                mutation.name == "set" and mutation.key not in dependent
            ):
                settled.append((mutation.key, mutation.key + b"\0"))
            elif mutation.name in OPERATIONS and not any(b <= mutation.key < e for b, e in settled):
                dependent.add(mutation.key)
        place = begin
        for first, last in sorted(settled):
            if last <= place:
                continue
            if first >= end:
                break
            if place < first:
                yield place, first
            place = last
        if place < end:
            yield place, end
