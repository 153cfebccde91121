"""Writing a file of a lake: the events of a range of positions, and the recorded appends that end in it.

A file is written under a temporary name, hashed, and then gets its final name, which is made of its range and its
SHA-256. tests/spark/test_lake.py compares the files with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ...errors import StoreCorrupt
from ..basics import LINES, entries_in, line_of, over_tasks
from ..delta import FileTable
from ..lake_engine.columns import EVENT, RECORDED, SCHEMA
from ..lake_engine.files import EVENTS, LakeFile, file_path, problem_of, sha256_of
from ..lake_engine.reader import COLUMNS
from ..scanning import Scan, Selection, to_spark

ROW_GROUP_EVENTS: Final = 125_000  # what a filter on positions or types can skip; smaller groups slow down every scan
ROW_GROUP_BYTES: Final = 67_108_864  # a worker holds one row group in memory

# Positions and times ascend. Stored as differences they take almost no space, and Spark decodes them faster than it
# decompresses whole numbers.
ASCENDING: Final = {"position": "DELTA_BINARY_PACKED", "recorded_at": "DELTA_BINARY_PACKED"}
DICTIONARIES: Final = ["type", "tags.list.element", "metadata.key_value.key", "append_conditions", "append_unless"]


def on_spark(spark: SparkSession, inputs: Sequence[Any], work: Callable[[Any], LakeFile]) -> list[LakeFile]:
    """Run `work` on each input, each in a task of its own; the files that it returns, by position."""
    found = entries_in(over_tasks(spark, inputs, partial(_line, work), LINES), LakeFile)
    return sorted(found, key=lambda file: file.after)


def _line(work: Callable[[Any], LakeFile], given: Any) -> Iterator[pa.RecordBatch]:
    yield line_of(work(given))


def export_range(scan: Scan, table: FileTable, after: int, up_to: int) -> LakeFile:
    """Write the file of a range of the log; in a worker."""
    return _write(table, after, up_to, _with_appends(_events(scan, after, up_to), scan.recorded(after, up_to)))


def merge_files(table: FileTable, run: Sequence[LakeFile]) -> LakeFile:
    """Write the file that replaces consecutive ones; in a worker. A damaged file must not get a new checksum."""
    for file in run:
        problem = problem_of(table, file)
        if problem:
            raise StoreCorrupt(f"{table.name(file.path)}: {problem}; the lake was not compacted")
    batches = (batch for file in run for batch in table.batches(file.path, SCHEMA.names))
    return _write(table, run[0].after, run[-1].up_to, (pa.Table.from_batches([batch], SCHEMA) for batch in batches))


def _write(table: FileTable, after: int, up_to: int, parts: Iterable[pa.Table]) -> LakeFile:
    rows = 0
    with table.draft(EVENTS) as draft:
        with pq.ParquetWriter(
            draft,
            SCHEMA,
            compression="zstd",
            use_dictionary=DICTIONARIES,
            column_encoding=ASCENDING,
            write_statistics=["position", "type", "recorded_at"],
            sorting_columns=[pq.SortingColumn(0)],
            write_page_checksum=True,
        ) as writer:
            for group in _row_groups(parts):
                writer.write_table(group, row_group_size=ROW_GROUP_EVENTS)
                rows += group.num_rows
        size, digest = draft.stat().st_size, sha256_of(draft)
        path = file_path(after, up_to, digest)
        table.put(draft, path)
    return LakeFile(path=path, after=after, up_to=up_to, rows=rows, bytes=size, sha256=digest)


def _row_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of ROW_GROUP_EVENTS or about ROW_GROUP_BYTES."""
    held = SCHEMA.empty_table()
    for part in parts:
        held = pa.concat_tables([held, part])
        while held.num_rows >= ROW_GROUP_EVENTS or held.nbytes >= ROW_GROUP_BYTES:
            yield held.slice(0, ROW_GROUP_EVENTS)
            held = held.slice(ROW_GROUP_EVENTS)
    if held.num_rows:
        yield held


def _events(scan: Scan, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
    for stored in scan.batches(Selection(after, up_to), COLUMNS):
        if stored.num_rows:
            yield to_spark(stored, EVENT)


def _with_appends(events: Iterator[pa.RecordBatch], recorded: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The events, each append in the row of its last event. Both come in the order of positions."""
    held = RECORDED.empty_table()
    for batch in events:
        positions = batch.column("position").to_numpy()
        while not held.num_rows or held.column("last")[-1].as_py() < positions[-1]:
            more = next(recorded, None)
            if more is None:
                break
            held = pa.concat_tables([held, pa.Table.from_batches([more], RECORDED)])
        lasts = held.column("last").to_numpy()
        count = int(np.searchsorted(lasts, positions[-1], side="right"))
        rows = np.full(len(positions), -1, dtype=np.int64)
        rows[np.searchsorted(positions, lasts[:count])] = np.arange(count)
        appends = held.select(["first", "conditions", "unless"]).take(pa.array(rows, mask=rows < 0))
        held = held.slice(count)
        yield pa.Table.from_arrays([*batch.columns, *appends.columns], schema=SCHEMA)
