"""Fencepost: an event store with Dynamic Consistency Boundaries."""

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
    RecordChanged,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from .model import AppendCondition, Delete, Event, Placed, Put, Query, QueryItem, Record, SequencedEvent
from .store import EventStore, Records, open

__all__ = [
    "AccessDenied",
    "AppendCondition",
    "AppendRefused",
    "CheckpointBehind",
    "ConditionFailed",
    "Delete",
    "Event",
    "EventStore",
    "FencepostError",
    "FormatUnsupported",
    "IdsOverlap",
    "InvalidInput",
    "Placed",
    "Put",
    "Query",
    "QueryItem",
    "Reading",
    "ReadingNotFinished",
    "Record",
    "RecordChanged",
    "Records",
    "SequencedEvent",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "Subscription",
    "open",
]
