"""Records: named values beside the log, each with a revision, and the changes that an append makes to them.

A change says which revision it expects, so of several writers with the same view of a record exactly one succeeds. Like
all values, a change is immutable and is checked when it is created. fencepost/testing/contract/records.py checks what
every store does with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .checks import checked_name, checked_revision, checked_value


@dataclass(frozen=True, slots=True)
class Record:
    """A named value, and the revision that a change of it must expect.

    Every change of a record adds one to its revision. A record that is created begins above the revisions of all
    records that were deleted before, so an old revision is never valid again.
    """

    name: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set the value of a record whose revision is `expected`, or create it: then `expected` is 0."""

    name: str
    value: bytes
    expected: int

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "name", checked_name(self.name, "name"))
        put(self, "value", checked_value(self.value))
        put(self, "expected", checked_revision(self.expected, least=0))


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record, whose revision must be `expected`."""

    name: str
    expected: int

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "name", checked_name(self.name, "name"))
        put(self, "expected", checked_revision(self.expected, least=1))
