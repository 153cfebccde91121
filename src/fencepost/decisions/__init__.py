"""Decisions: typed events, projections, and rules that read, decide, append and retry."""

from .clocks import clock, now
from .codecs import Codec, json_codec, msgpack_codec
from .contexts import caused_by, context
from .deciding import Decided, Decision, Unchecked, decision
from .definitions import Definition
from .effects import Effect, effect
from .errors import DefinitionError, EventUnreadable, RetriesExhausted, TypeUnknown
from .events import EventTypes, encode, event, having
from .handlers import on
from .idempotency import Once
from .projections import Projection
from .reading import project
from .retry import NEVER, Retry
from .snapshots import Cached
from .tags import Tag, tag

__all__ = [
    "Cached",
    "Codec",
    "Decided",
    "Decision",
    "Definition",
    "DefinitionError",
    "Effect",
    "EventTypes",
    "EventUnreadable",
    "NEVER",
    "Once",
    "Projection",
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
