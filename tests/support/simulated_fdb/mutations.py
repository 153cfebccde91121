"""What a transaction asks of the cluster: its mutations, and the ranges that decide about conflicts.

Atomic operations make of the value that is there what the documentation says of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from .errors import CLIENT_INVALID_OPERATION, FDBError

VALUE_BYTES: Final = 100_000
STAMP_BYTES: Final = 10

Range: TypeAlias = tuple[bytes, bytes]  # from the first key up to, and without, the second
Operation: TypeAlias = Callable[[bytes | None, bytes], bytes | None]


def fitted(value: bytes | None, param: bytes) -> bytes:
    """The value as wide as the parameter: cut off, or filled with zero bytes."""
    return (value or b"")[: len(param)].ljust(len(param), b"\0")


def _little(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _add(value: bytes | None, param: bytes) -> bytes:
    total = _little(fitted(value, param)) + _little(param)
    return (total & ((1 << 8 * len(param)) - 1)).to_bytes(len(param), "little")


def _and(value: bytes | None, param: bytes) -> bytes:
    return param if value is None else bytes(a & b for a, b in zip(fitted(value, param), param, strict=True))


def _or(value: bytes | None, param: bytes) -> bytes:
    return bytes(a | b for a, b in zip(fitted(value, param), param, strict=True))


def _xor(value: bytes | None, param: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(fitted(value, param), param, strict=True))


def _max(value: bytes | None, param: bytes) -> bytes:
    return max(fitted(value, param), param, key=_little)


def _min(value: bytes | None, param: bytes) -> bytes:
    return param if value is None else min(fitted(value, param), param, key=_little)


def _byte_max(value: bytes | None, param: bytes) -> bytes:
    return param if value is None else max(value, param)


def _byte_min(value: bytes | None, param: bytes) -> bytes:
    return param if value is None else min(value, param)


def _append_if_fits(value: bytes | None, param: bytes) -> bytes:
    joined = (value or b"") + param
    return joined if len(joined) <= VALUE_BYTES else value or b""


def _compare_and_clear(value: bytes | None, param: bytes) -> bytes | None:
    return None if value == param else value


OPERATIONS: Final[dict[str, Operation]] = {
    "set": lambda value, param: param,
    "add": _add,
    "bit_and": _and,
    "bit_or": _or,
    "bit_xor": _xor,
    "max": _max,
    "min": _min,
    "byte_max": _byte_max,
    "byte_min": _byte_min,
    "append_if_fits": _append_if_fits,
    "compare_and_clear": _compare_and_clear,
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One write of a transaction, `name` being an operation, clear_range or a versionstamped set."""

    name: str
    key: bytes
    param: bytes

    def touches(self, key: bytes) -> bool:
        return self.key <= key < self.param if self.name == "clear_range" else self.key == key

    def applied(self, value: bytes | None) -> bytes | None:
        return None if self.name == "clear_range" else OPERATIONS[self.name](value, self.param)

    def stamped(self, stamp: bytes) -> Mutation:
        """The mutation as it is stored, once the versionstamp of its transaction is known."""
        if self.name == "set_versionstamped_key":
            return Mutation("set", with_stamp(self.key, stamp), self.param)
        if self.name == "set_versionstamped_value":
            return Mutation("set", self.key, with_stamp(self.param, stamp))
        return self


def with_stamp(template: bytes, stamp: bytes) -> bytes:
    """The template with the stamp where its last four bytes say, and without those."""
    if len(template) < STAMP_BYTES + 4:
        raise FDBError(CLIENT_INVALID_OPERATION)
    text, offset = template[:-4], _little(template[-4:])
    if offset + STAMP_BYTES > len(text):
        raise FDBError(CLIENT_INVALID_OPERATION)
    return text[:offset] + stamp + text[offset + STAMP_BYTES :]


@dataclass(slots=True)
class Request:
    """What a client sends to have a transaction committed."""

    read_version: int
    reads: list[Range] = field(default_factory=list)
    writes: list[Range] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
