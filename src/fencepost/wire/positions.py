"""Positions on the wire.

JavaScript and many JSON parsers hold numbers as 64-bit floats, which are exact up to 2**53. Positions of FoundationDB
have 96 bits. So a position travels as a number if it is below 2**53, and as a string of digits otherwise. Both forms
are accepted for every position.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ..errors import InvalidInput

WirePosition: TypeAlias = int | str

FIRST_TEXT: Final = 2**53
LONGEST_TEXT: Final = 29  # digits of 2**96 - 1


def to_wire(position: int) -> WirePosition:
    """
    >>> to_wire(7), to_wire(2**64)
    (7, '18446744073709551616')
    """
    return position if position < FIRST_TEXT else str(position)


def from_wire(given: WirePosition, field: str) -> int:
    """The position, not yet checked against the limits of positions."""
    if isinstance(given, int):
        return given
    if not given.isascii() or not given.isdigit() or len(given) > LONGEST_TEXT:
        raise InvalidInput(field, f"a position is a number or a string of at most {LONGEST_TEXT} digits: {given!r:.80}")
    return int(given)
