"""The errors of `fencepost.decisions`, in the tree of the store's errors.

    FencepostError
    ├── DefinitionError (TypeError)   an event, projection or decision is declared wrongly
    ├── EventUnreadable               a stored event does not fit its class
    │   └── TypeUnknown               no class is declared for its type
    └── AppendRefused
        ├── RetriesExhausted          every attempt of a decision met a conflict
        └── RequestMismatch           the command id or event belongs to another request

Exceptions that a rule raises are passed on unchanged and never retried.
"""

from __future__ import annotations

from ..errors import AppendRefused, FencepostError
from ..model import AppendCondition, SequencedEvent


class DefinitionError(FencepostError, TypeError):
    """A mistake in a declaration, found when it is made or first used. Nothing was written."""


class EventUnreadable(FencepostError):
    """A stored event does not fit its class: it has other or unknown fields, or a newer version.

    `position` and `type` identify the event; `event` is the stored event.
    """

    def __init__(self, event: SequencedEvent, problem: str) -> None:
        super().__init__(f"event {event.type!r} at position {event.position}: {problem}")
        self.event = event
        self.problem = problem

    @property
    def position(self) -> int:
        return self.event.position

    @property
    def type(self) -> str:
        return self.event.type


class TypeUnknown(EventUnreadable):
    """No class is declared for the type of a stored event."""


class RetriesExhausted(AppendRefused):
    """Every attempt of a decision met a conflict. Nothing was written.

    `conflict` is the event that refused the last attempt, `condition` the condition that it matched, and `elapsed_s`
    the time since the call.
    """

    def __init__(
        self, decision: str, attempts: int, elapsed_s: float, condition: AppendCondition, conflict: SequencedEvent
    ) -> None:
        tried = "the only attempt" if attempts == 1 else f"each of {attempts} attempts"
        super().__init__(
            f"{decision}: {tried} in {elapsed_s:.2f} s met a conflict, the last one with event "
            f"{conflict.type!r} at position {conflict.position}; retry later, raise the limits with Retry(...), "
            "or narrow the boundary of the decision"
        )
        self.decision = decision
        self.attempts = attempts
        self.elapsed_s = elapsed_s
        self.condition = condition
        self.conflict = conflict


class RequestMismatch(AppendRefused):
    """The command id or event that identifies a request belongs to another request; nothing was written.

    `sought` describes what was looked up, and `earlier` is the event that was found. `fields` are the fields of the
    event that differ; it is empty for a command id, whose digest does not tell which arguments differ.
    """

    def __init__(self, decision: str, sought: str, earlier: SequencedEvent, fields: tuple[str, ...]) -> None:
        what = f"other values of {', '.join(fields)}" if fields else "other arguments"
        super().__init__(
            f"{decision}: once found {sought}, but the event {earlier.type!r} at position {earlier.position} "
            f"was written by a request with {what}; repeat the original request, or use a new id"
        )
        self.decision = decision
        self.sought = sought
        self.earlier = earlier
        self.fields = fields
