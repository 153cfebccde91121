"""Fencepost: an event store with Dynamic Consistency Boundaries."""

from .errors import (
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
    StoreUnavailable,
)
from .model import AppendCondition, Event, Placed, Query, QueryItem, RecordedAppend, SequencedEvent
from .opening import open
from .store import Engine, EventStore, Reading
from .subscription import Subscription

__all__ = [
    "AppendCondition",
    "AppendRefused",
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
    "StoreUnavailable",
    "Subscription",
    "open",
]
