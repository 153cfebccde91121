"""Errors on the wire: problem+json (RFC 9457), and back into exceptions.

Each kind of error has one `type`, which is stable: programs branch on it. `retryable` says whether the same request
may succeed later. What helps a client to go on is a member of its own: the field and the problem, the conflicting
event, the current position of a checkpoint. `error_from` makes the exception that the store raised at the server, so
a program handles the errors of a remote store as it handles those of a local one.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import (
    AccessDenied,
    AppendRefused,
    CheckpointBehind,
    ConditionFailed,
    FencepostError,
    FormatUnsupported,
    IdsOverlap,
    InvalidInput,
    RecordChanged,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from ...tools import EventDocument, WirePosition, document_of, from_wire, to_wire

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "urn:fencepost:"


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem: the last part of its type, its title, and the HTTP status that it has."""

    name: str
    title: str
    status: int
    retryable: bool = False

    @property
    def type(self) -> str:
        return PREFIX + self.name


BAD_REQUEST: Final = Kind("bad-request", "This is not a valid HTTP request", 400)
INVALID_INPUT: Final = Kind("invalid-input", "The request is not valid", 422)
UNAUTHENTICATED: Final = Kind("unauthenticated", "An API key is needed", 401)
FORBIDDEN: Final = Kind("forbidden", "The API key does not allow this", 403)
NOT_FOUND: Final = Kind("not-found", "There is nothing at this path", 404)
NO_SUCH_CONSUMER: Final = Kind("no-such-consumer", "No consumer has this name", 404)
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", "This path does not support the method", 405)
CONDITION_FAILED: Final = Kind("condition-failed", "An event matches the condition", 409)
IDS_OVERLAP: Final = Kind("ids-overlap", "Some of the event ids are stored already", 409)
CHECKPOINT_BEHIND: Final = Kind("checkpoint-behind", "The checkpoint would not grow", 409)
RECORD_CHANGED: Final = Kind("record-changed", "The record is at another revision", 409)
NO_SUCH_RECORD: Final = Kind("no-such-record", "No record has this name", 404)
COMMAND_REFUSED: Final = Kind("command-refused", "The state of the consumer does not allow this", 409)
TIMED_OUT: Final = Kind("request-timeout", "The request did not arrive in time", 408, retryable=True)
TOO_LARGE: Final = Kind("too-large", "The request is too large", 413)
BUSY: Final = Kind("busy", "The server has too much to do", 503, retryable=True)
HEAD_TOO_LARGE: Final = Kind("head-too-large", "The request line and the headers are too large", 431)
RATE_LIMITED: Final = Kind("rate-limited", "Too many requests with this API key", 429, retryable=True)
UNAVAILABLE: Final = Kind("unavailable", "The store is unavailable", 503, retryable=True)
READ_ONLY: Final = Kind("read-only", "The store is read-only", 403)
CORRUPT: Final = Kind("corrupt", "What is stored contradicts itself", 500)
UNSUPPORTED: Final = Kind("format-unsupported", "The store's format is not supported", 500)
STORE_FAILED: Final = Kind("store-failed", "The store failed", 500)
INTERNAL: Final = Kind("internal", "The server failed", 500)

# In this order: the first class that an error is an instance of decides.
OF_ERRORS: Final[tuple[tuple[type[FencepostError], Kind], ...]] = (
    (InvalidInput, INVALID_INPUT),
    (ConditionFailed, CONDITION_FAILED),
    (IdsOverlap, IDS_OVERLAP),
    (CheckpointBehind, CHECKPOINT_BEHIND),
    (RecordChanged, RECORD_CHANGED),
    (AccessDenied, FORBIDDEN),
    (StoreUnavailable, UNAVAILABLE),  # a client gets this error, the first one of the kind
    (StoreClosed, UNAVAILABLE),
    (StoreReadOnly, READ_ONLY),
    (StoreCorrupt, CORRUPT),
    (FormatUnsupported, UNSUPPORTED),
    (StoreError, STORE_FAILED),
)


class Problem(msgspec.Struct, omit_defaults=True):
    """The body of an answer that is not a success."""

    type: str
    title: str
    status: int
    detail: str
    retryable: bool
    field: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    outcome: str | UnsetType = UNSET  # "unknown": whether the append was stored is not known
    condition: int | UnsetType = UNSET  # the index of the condition that failed
    conflict: EventDocument | UnsetType = UNSET
    position: WirePosition | UnsetType = UNSET
    stored: UUID | UnsetType = UNSET
    missing: UUID | UnsetType = UNSET
    name: str | UnsetType = UNSET
    current: WirePosition | UnsetType = UNSET
    expected: int | UnsetType = UNSET
    revision: int | UnsetType = UNSET  # of the record as it is now, 0 if there is none


def problem(kind: Kind, detail: str) -> Problem:
    return Problem(kind.type, kind.title, kind.status, detail, kind.retryable)


def problem_of(error: FencepostError, *, condition: int = 0) -> Problem:
    """The error as a problem; `condition` is the index of the condition, for `ConditionFailed`."""
    kind = next((kind for of, kind in OF_ERRORS if isinstance(error, of)), STORE_FAILED)
    made = problem(kind, str(error))
    if isinstance(error, InvalidInput):
        made.field, made.problem = error.field, error.problem
    elif isinstance(error, ConditionFailed):
        made.condition, made.conflict = condition, document_of(error.conflict)
        made.position = to_wire(error.conflict.position)
    elif isinstance(error, IdsOverlap):
        made.stored, made.position, made.missing = error.stored, to_wire(error.position), error.missing
    elif isinstance(error, CheckpointBehind):
        made.name, made.position, made.current = error.name, to_wire(error.position), to_wire(error.current)
    elif isinstance(error, RecordChanged):
        made.name, made.expected = error.name, error.expected
        made.revision = 0 if error.current is None else error.current.revision
    return made


def error_from(given: Problem) -> FencepostError:
    """The exception that the problem stands for. Refusals of appends arrive as outcomes, not as problems."""
    kinds = {kind.type: of for of, kind in reversed(OF_ERRORS)}
    of = kinds.get(given.type)
    if of is InvalidInput:
        field = "request" if given.field is UNSET else given.field
        return InvalidInput(field, given.detail if given.problem is UNSET else given.problem)
    if of is CheckpointBehind and UNSET not in (given.name, given.position, given.current):
        assert isinstance(given.name, str)
        return CheckpointBehind(given.name, _position(given.position), _position(given.current))
    if given.type == UNAUTHENTICATED.type:
        return AccessDenied(given.detail)
    if of is None or issubclass(of, AppendRefused):
        return StoreUnavailable(given.detail) if given.retryable else StoreError(f"{given.title}: {given.detail}")
    return of(given.detail)


def _position(given: WirePosition | UnsetType) -> int:
    assert not isinstance(given, UnsetType)
    return from_wire(given, "position")
