"""The errors that Fencepost raises.

    FencepostError
    ├── InvalidInput (ValueError)     an argument is malformed; nothing was written
    ├── AppendRefused                 the store works and refused the append; nothing was written
    │   ├── ConditionFailed           an event after the condition's `after` matches its query
    │   ├── IdsOverlap                some of the append's ids are stored already, others are not
    │   ├── CheckpointBehind          the checkpoint would not grow
    │   └── RecordChanged             a record does not have the expected revision
    ├── ReadingNotFinished            the head of a reading with a limit is not known yet
    └── StoreError                    the storage failed
        ├── StoreClosed               used after close(), or opened before this process was forked
        ├── StoreUnavailable          busy, full or unreachable: trying again may help
        ├── StoreReadOnly             opened for reading only, or its file cannot be written
        ├── AccessDenied              a server refused the API key, or what it was used for
        ├── StoreCorrupt              the stored data is damaged
        └── FormatUnsupported         not a Fencepost store, or written by a newer version

A storage that fails while it checks a condition raises a `StoreError`, never `ConditionFailed`. After an
`AppendRefused` or `InvalidInput` nothing was written. After a `StoreError` from `append` the outcome is unknown: the
append is stored as a whole or not at all. To find out which, append again with the same event ids.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from .model import AppendCondition, Record, SequencedEvent


class FencepostError(Exception):
    """The base class of all errors of Fencepost."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By its attributes, without a call of `__init__`, whose arguments are not `args`: those are the message.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidInput(FencepostError, ValueError):
    """A value is malformed, so nothing was done. `field` names the value, `problem` says what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class AppendRefused(FencepostError):
    """The store refused the append. Nothing was written."""


class ConditionFailed(AppendRefused):
    """An event after the condition's `after` matches its query.

    Read the new events, decide again, and append again. `conflict` is the first event that matches.
    """

    def __init__(self, condition: AppendCondition, conflict: SequencedEvent) -> None:
        super().__init__(
            f"condition failed: event {conflict.type!r} at position {conflict.position} "
            f"matches the query and is after {condition.after}; read again and decide again"
        )
        self.condition = condition
        self.conflict = conflict


class IdsOverlap(AppendRefused):
    """Some of the append's event ids are stored already, others are not.

    A retry must have exactly the ids of the first attempt. Any other overlap would store a part of an append twice.
    """

    def __init__(self, stored: UUID, position: int, missing: UUID) -> None:
        super().__init__(
            f"ids: {stored} is stored already at position {position} but {missing} is not; "
            "append new events under new ids, or retry the whole append"
        )
        self.stored = stored
        self.position = position
        self.missing = missing


class CheckpointBehind(AppendRefused):
    """The checkpoint is already at or above the given position: another consumer has moved it."""

    def __init__(self, name: str, position: int, current: int) -> None:
        super().__init__(
            f"checkpoint {name!r}: position {position} is not above the current {current}; "
            "another consumer has moved it"
        )
        self.name = name
        self.position = position
        self.current = current


class RecordChanged(AppendRefused):
    """The record does not have the expected revision: another writer has changed, created or deleted it.

    `current` is the record as it is now, or None if there is none.
    """

    def __init__(self, name: str, expected: int, current: Record | None) -> None:
        found = "does not exist" if current is None else f"is at revision {current.revision}"
        wanted = f"revision {expected} was expected" if expected else "it was expected not to exist"
        super().__init__(f"record {name!r} {found}, and {wanted}; read it and decide again")
        self.name = name
        self.expected = expected
        self.current = current


class ReadingNotFinished(FencepostError):
    """The head of a reading with a limit is known only after it has been iterated to its end."""


class StoreError(FencepostError):
    """The storage failed. An append that raised this may be stored or not."""


class StoreClosed(StoreError):
    """The store was closed, or was opened in the process that this process was forked from."""


class StoreUnavailable(StoreError):
    """The storage is busy, full or unreachable. Nothing is damaged; trying again may help."""


class StoreReadOnly(StoreError):
    """The store can be read but not written: it was opened for reading only, or its file cannot be written."""


class AccessDenied(StoreError):
    """The server does not accept the API key, or the key does not allow the request. Nothing was written."""


class StoreCorrupt(StoreError):
    """The stored data is damaged.

    `fencepost verify` reports what is damaged. `fencepost salvage` copies what is intact to a new store.
    """


class FormatUnsupported(StoreError):
    """Not a Fencepost store, or one written by a newer version of Fencepost."""
