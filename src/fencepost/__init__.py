"""Fencepost: an event store with Dynamic Consistency Boundaries."""

from .core.engine import Capability, Engine
from .core.readings import Reading
from .core.subscriptions import Subscription
from .errors import (
    AccessDenied,
    AppendRefused,
    CheckpointBehind,
    ConditionFailed,
    FencepostError,
    FormatUnsupported,
    IdsOverlap,
    InvalidInput,
    ReadingNotFinished,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from .model import AppendCondition, Event, Placed, Query, QueryItem, RecordedAppend, SequencedEvent
from .opening import open
from .store import EventStore

__all__ = [
    "AccessDenied",
    "AppendCondition",
    "AppendRefused",
    "Capability",
    "CheckpointBehind",
    "ConditionFailed",
    "Engine",
    "Event",
    "EventStore",
    "FencepostError",
    "FormatUnsupported",
    "IdsOverlap",
    "InvalidInput",
    "Placed",
    "Query",
    "QueryItem",
    "Reading",
    "ReadingNotFinished",
    "RecordedAppend",
    "SequencedEvent",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "Subscription",
    "open",
]
