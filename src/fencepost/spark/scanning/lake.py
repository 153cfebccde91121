"""Scanning a lake in a worker: the files of a range, as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ... import EventStore, Query
from ..lake_engine.engine import LakeEngine
from ..lake_engine.files import lake_at
from ..lake_engine.reader import read_files, read_recorded
from .selection import Selection


@dataclass(frozen=True)
class LakeScan:
    folder: str  # or the URL of a prefix in an object store

    def open(self) -> EventStore:
        return EventStore(LakeEngine(self.folder))

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        """Borders by the rows that the table counts, because positions may have gaps."""
        files = [file for file in lake_at(self.folder).files if file.overlaps(selection.after, selection.up_to)]
        total = sum(file.rows for file in files)
        borders, seen = [], 0
        for file in files:
            for part in range(1, parts):
                wanted = total * part // parts
                if seen < wanted <= seen + file.rows:
                    border = file.after + (file.up_to - file.after) * (wanted - seen) // file.rows
                    borders.append(min(max(border, selection.after), selection.up_to))
            seen += file.rows
        return sorted(set(borders))

    def recorded(self, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
        return read_recorded(lake_at(self.folder), after=after, up_to=up_to)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        query = selection.query
        wanted = list(dict.fromkeys([*columns, "position", "type", "tags"] if not query.matches_all else columns))
        lake = lake_at(self.folder)
        for batch in read_files(lake, wanted, after=selection.after, up_to=selection.up_to, types=selection.types):
            if not query.matches_all:
                batch = _matching(batch, query)
            if batch.num_rows:
                yield batch.select(list(columns))


def _matching(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    kept = [
        any((not item.types or type in item.types) and item.tags <= set(tags) for item in query.items)
        for type, tags in zip(batch.column("type").to_pylist(), batch.column("tags").to_pylist(), strict=True)
    ]
    return batch.filter(pa.array(kept, type=pa.bool_()))
