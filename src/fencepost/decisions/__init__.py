"""Decisions: typed events, projections, and rules that read, decide, append and retry."""

from .arguments import Unchecked
from .codecs import Codec, json_codec, msgpack_codec
from .command_ids import CommandId
from .contexts import caused_by, clock, context, now
from .decorator import Decision, decision
from .definitions import Definition
from .effects import Effect, effect
from .errors import DefinitionError, EventUnreadable, RequestMismatch, RetriesExhausted, TypeUnknown
from .events import EventTypes, encode, event, having
from .execution import ConflictMet, Decided, DecisionEnded
from .handlers import on
from .idempotency import Once
from .loading import project
from .projections import Projection
from .retry import NEVER, Retry
from .snapshots import Cached
from .tags import Tag, tag

__all__ = [
    "Cached",
    "Codec",
    "CommandId",
    "ConflictMet",
    "Decided",
    "Decision",
    "DecisionEnded",
    "Definition",
    "DefinitionError",
    "Effect",
    "EventTypes",
    "EventUnreadable",
    "NEVER",
    "Once",
    "Projection",
    "RequestMismatch",
    "RetriesExhausted",
    "Retry",
    "Tag",
    "TypeUnknown",
    "Unchecked",
    "caused_by",
    "clock",
    "context",
    "decision",
    "effect",
    "encode",
    "event",
    "having",
    "json_codec",
    "msgpack_codec",
    "now",
    "on",
    "project",
    "tag",
]
