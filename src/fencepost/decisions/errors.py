"""What the decisions layer raises, below the errors of the store.

    FencepostError
    ├── DefinitionError (TypeError)   an event, projection or decision is declared wrongly
    ├── EventUnreadable               a stored event does not fit the class that is to read it
    │   └── TypeUnknown               no class is declared for its type
    └── AppendRefused
        └── RetriesExhausted          every attempt of a decision met a conflict

What a decision itself raises, its business errors, passes through untouched and is never retried.
"""

from __future__ import annotations

from ..errors import AppendRefused, ConditionFailed, FencepostError
from ..model import AppendCondition, SequencedEvent


class DefinitionError(FencepostError, TypeError):
    """A mistake in a declaration, found when it is made or first used; nothing was written."""


class EventUnreadable(FencepostError):
    """A stored event does not fit its class: another shape, unknown fields, or a newer version."""

    def __init__(self, event: SequencedEvent, problem: str) -> None:
        super().__init__(f"event {event.type!r} at position {event.position}: {problem}")
        self.event = event
        self.problem = problem

    def __reduce__(self) -> tuple[type, tuple[SequencedEvent, str]]:
        return type(self), (self.event, self.problem)


class TypeUnknown(EventUnreadable):
    """No class is declared for the type of a stored event."""


class RetriesExhausted(AppendRefused):
    """A decision met a conflict on each of its attempts; nothing was written.

    `conflict` is the event that the last attempt had not seen, `condition` what it matched.
    """

    def __init__(self, decision: str, attempts: int, condition: AppendCondition, conflict: SequencedEvent) -> None:
        super().__init__(
            f"{decision}: {attempts} of {attempts} attempts met a conflict, the last one with event "
            f"{conflict.type!r} at position {conflict.position}; call it again later, allow more attempts, "
            "or narrow its boundary"
        )
        self.decision = decision
        self.attempts = attempts
        self.condition = condition
        self.conflict = conflict

    @classmethod
    def of(cls, decision: str, attempts: int, last: ConditionFailed) -> RetriesExhausted:
        return cls(decision, attempts, last.condition, last.conflict)

    def __reduce__(self) -> tuple[type, tuple[str, int, AppendCondition, SequencedEvent]]:
        return type(self), (self.decision, self.attempts, self.condition, self.conflict)
