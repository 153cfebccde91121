"""Everything that Fencepost raises.

    FencepostError
    ├── InvalidInput (ValueError)     the caller's mistake; nothing was written
    ├── AppendRefused                 the store is fine and said no; nothing was written
    │   ├── ConditionFailed           an event that the decision had not seen matches its query
    │   ├── IdsOverlap                some, not all, of the append's ids are stored already
    │   └── CheckpointBehind          the checkpoint would not grow
    ├── ReadingNotFinished            a limited reading was asked for its head too early
    └── StoreError                    the storage said no, or nothing at all
        ├── StoreClosed               used after close(), or in a forked child
        ├── StoreUnavailable          busy, full or out of reach: trying again may help
        ├── StoreCorrupt              what is stored contradicts itself
        └── FormatUnsupported         not a Fencepost store, or one that is newer than this library

A refusal is never a storage error and a storage error is never a refusal: a failed check is
not a failed condition. After an `AppendRefused` or `InvalidInput` nothing was written. After a
`StoreError` from `append` nothing was acknowledged: the append is stored whole or not at all,
and appending again with the same event ids settles which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from .model import AppendCondition, SequencedEvent


class FencepostError(Exception):
    """The root: `except FencepostError` catches everything that is ours."""


class InvalidInput(FencepostError, ValueError):
    """A value was refused before anything was tried; `field` names it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.problem)


class AppendRefused(FencepostError):
    """The append was judged and refused; nothing of it was written."""


class ConditionFailed(AppendRefused):
    """An event after the condition's `after` matches its query.

    Read again from `conflict.position` on, decide again, append again.
    """

    def __init__(self, condition: AppendCondition, conflict: SequencedEvent) -> None:
        super().__init__(
            f"condition failed: event {conflict.type!r} at position {conflict.position} "
            f"matches the query and is after {condition.after}; read again and decide again"
        )
        self.condition = condition
        self.conflict = conflict

    def __reduce__(self) -> tuple[type, tuple[AppendCondition, SequencedEvent]]:
        return type(self), (self.condition, self.conflict)


class IdsOverlap(AppendRefused):
    """Some of the append's event ids are stored already, others are not.

    A retry carries exactly the ids of the first try; anything else is a mistake that would
    store half of an append twice.
    """

    def __init__(self, stored: UUID, position: int, missing: UUID) -> None:
        super().__init__(
            f"ids: {stored} is stored already at position {position} but {missing} is not; "
            "append new events under new ids, or retry the whole append"
        )
        self.stored = stored
        self.position = position
        self.missing = missing

    def __reduce__(self) -> tuple[type, tuple[UUID, int, UUID]]:
        return type(self), (self.stored, self.position, self.missing)


class CheckpointBehind(AppendRefused):
    """The checkpoint is at or beyond the given position already: somebody else went on."""

    def __init__(self, name: str, position: int, current: int) -> None:
        super().__init__(
            f"checkpoint {name!r}: position {position} is not above the current {current}; "
            "another consumer has moved it"
        )
        self.name = name
        self.position = position
        self.current = current

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.name, self.position, self.current)


class ReadingNotFinished(FencepostError):
    """With a limit, how far a reading reaches is known only once it has been iterated to its end."""


class StoreError(FencepostError):
    """The storage failed. An append that raised this was not acknowledged."""


class StoreClosed(StoreError):
    """The store was closed, or belongs to the process that this one was forked from."""


class StoreUnavailable(StoreError):
    """Busy, full or out of reach. Nothing is broken; trying again may help."""


class StoreCorrupt(StoreError):
    """What is stored contradicts itself. `fencepost verify` says what is wrong where."""


class FormatUnsupported(StoreError):
    """Not a Fencepost store, or one written by a newer version of Fencepost."""
