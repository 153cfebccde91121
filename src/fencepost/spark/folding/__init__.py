"""Folds: one row for each key, computed by the projection classes that decisions use.

plan        what is folded by which keys into which columns, checked on the driver
states      a projection's state as columns: their types from its annotations
log         the events to fold, as rows with keys
fold        `fold`, and the pass over the rows of a key in a worker
"""

from __future__ import annotations

from .fold import Folder, Saved, fold
from .log import Log, log_of
from .plan import (
    ERROR,
    POSITION,
    STATE,
    UPTO,
    VALID_FROM,
    VALID_FROM_TIME,
    VALID_TO,
    VALID_TO_TIME,
    OnError,
    Plan,
    refuse_names,
)
from .states import type_of

__all__ = [
    "ERROR",
    "POSITION",
    "STATE",
    "UPTO",
    "VALID_FROM",
    "VALID_FROM_TIME",
    "VALID_TO",
    "VALID_TO_TIME",
    "Folder",
    "Log",
    "OnError",
    "Plan",
    "Saved",
    "fold",
    "log_of",
    "refuse_names",
    "type_of",
]
