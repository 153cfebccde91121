"""Lakes that are written without Spark: its tasks are plain calls in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.core.address import Address
from fencepost.spark.delta import Change, FileTable
from fencepost.spark.lake import compaction, exports, verification
from fencepost.spark.lake.writer import export_range
from fencepost.spark.lake_engine.columns import SCHEMA
from fencepost.spark.lake_engine.files import Lake, LakeFile, lake_of
from fencepost.spark.scanning import digest_at
from fencepost.spark.scanning.store import StoreScan

NO_SPARK: Any = None


def here(spark: Any, inputs: Sequence[Any], work: Callable[[Any], LakeFile]) -> list[LakeFile]:
    """The tasks of a round, in this process."""
    return [work(each) for each in inputs]


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports, compactions and verifications run in this process, with `NO_SPARK` as the session."""
    for module in (exports, compaction, verification):
        monkeypatch.setattr(module, "on_spark", here)
    for each in (exports, verification):
        monkeypatch.setattr(each, "parallelism", lambda spark: 2)
    monkeypatch.setattr(exports, "scan_of", StoreScan)


def written(log: str, folder: str | Path, *borders: int) -> Lake:
    """A new lake of the log: a file for each range between two borders, each in a commit of its own."""
    table = FileTable(str(folder))
    state = table.create(SCHEMA, "events", {})
    after = 0
    with fencepost.open(log) as store:
        for border in borders:
            file = export_range(StoreScan(Address.parse(log)), table, after, border)
            state = table.commit(state, Change([file], (), border, digest_at(store, border)))
            after = border
    return lake_of(table, state)
