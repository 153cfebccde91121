"""Decisions: typed events, projections, and rules that read, decide, append and retry.

What tools ask of these classes is in `fencepost.decisions.inspection`.
"""

from .contexts import clock, context, now
from .decision_input import project
from .decorator import decision
from .effects import Effect
from .errors import DefinitionError, EventUnreadable, RequestMismatch, RetriesExhausted
from .events import EventTypes, Tag, encode, event, having, tag
from .execution import Decided, Unchecked
from .once import CommandId, Once
from .projections import Projection, on
from .retry import Retry
from .snapshots import Cached

__all__ = [
    "Cached",
    "CommandId",
    "Decided",
    "DefinitionError",
    "Effect",
    "EventTypes",
    "EventUnreadable",
    "Once",
    "Projection",
    "RequestMismatch",
    "RetriesExhausted",
    "Retry",
    "Tag",
    "Unchecked",
    "clock",
    "context",
    "decision",
    "encode",
    "event",
    "having",
    "now",
    "on",
    "project",
    "tag",
]
