"""Rows of a DataFrame, as events to compare."""

from __future__ import annotations

from datetime import timezone
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame

from fencepost import SequencedEvent


def event_of(row: Any) -> SequencedEvent:
    return SequencedEvent(
        int(row["position"]),
        row["type"],
        frozenset(row["tags"]),
        bytes(row["data"]),
        row["recorded_at"].replace(tzinfo=timezone.utc) if row["recorded_at"].tzinfo is None else row["recorded_at"],
        None if row["id"] is None else UUID(row["id"]),
        dict(row["metadata"]),
    )


def events_in(frame: DataFrame) -> list[SequencedEvent]:
    return sorted(map(event_of, frame.collect()), key=lambda event: event.position)
