"""Writing a file of a lake: the events of a range of positions, and the recorded appends that end in it.

A file is written under a temporary name, synced, hashed, and then gets its final name, which is made of its range. The
same range of the same log is the same file. In an object store, the name ends in random digits, so that no two writers
put the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...engines.lake.columns import RECORDED, SCHEMA
from ...engines.lake.files import APPENDS, EVENTS, AppendsFile, LakeFile, file_name, sha256_of
from ...engines.lake.reading import COLUMNS
from ...storage import Storage
from ..scanning import Scan, Selection, to_spark

ROW_GROUP_EVENTS: Final = 125_000  # what a filter on positions or types can skip; smaller groups slow down every scan
ROW_GROUP_BYTES: Final = 67_108_864  # a worker holds one row group in memory

# Positions and times ascend. Stored as differences they take almost no space, and Spark decodes them faster than it
# decompresses whole numbers.
ASCENDING: Final = {"position": "DELTA_BINARY_PACKED", "recorded_at": "DELTA_BINARY_PACKED"}


def write_chunk(scan: Scan, storage: Storage, after: int, upto: int) -> LakeFile:
    """Write the file of a range; returns its entry for the manifest."""
    path = file_name(storage, EVENTS, after, upto)
    first = last = rows = 0
    with storage.new_file(path) as draft:
        with pq.ParquetWriter(
            draft,
            SCHEMA,
            compression="zstd",
            use_dictionary=["type", "tags.list.element", "metadata.key_value.key"],
            column_encoding=ASCENDING,
            write_statistics=["position", "type", "recorded_at"],
            sorting_columns=[pq.SortingColumn(0)],
            write_page_checksum=True,
        ) as writer:
            for table in _row_groups(scan, after, upto):
                writer.write_table(table, row_group_size=ROW_GROUP_EVENTS)
                first = first or table.column("position")[0].as_py()
                last = table.column("position")[-1].as_py()
                rows += table.num_rows
        size, digest = draft.stat().st_size, sha256_of(draft)
    appends = _write_appends(scan, storage, after, upto)
    return LakeFile(
        path=path,
        after=after,
        upto=upto,
        first=first,
        last=last,
        rows=rows,
        bytes=size,
        sha256=digest,
        appends=appends,
    )


def _write_appends(scan: Scan, storage: Storage, after: int, upto: int) -> AppendsFile | None:
    """Write the recorded appends that end in the range to a file of their own; None if there are none."""
    batches = scan.recorded(after, upto)
    begun = next(batches, None)
    if begun is None:
        return None
    path = file_name(storage, APPENDS, after, upto)
    rows = 0
    with storage.new_file(path) as draft:
        with pq.ParquetWriter(draft, RECORDED, compression="zstd", write_page_checksum=True) as writer:
            for batch in chain([begun], batches):
                writer.write_batch(batch)
                rows += batch.num_rows
        return AppendsFile(path=path, rows=rows, bytes=draft.stat().st_size, sha256=sha256_of(draft))


def _row_groups(scan: Scan, after: int, upto: int) -> Iterator[pa.Table]:
    """The events of the range, in tables of ROW_GROUP_EVENTS or about ROW_GROUP_BYTES."""
    held = SCHEMA.empty_table()
    for stored in scan.batches(Selection(after, upto), COLUMNS):
        held = pa.concat_tables([held, pa.Table.from_batches([to_spark(stored, SCHEMA)])])
        while held.num_rows >= ROW_GROUP_EVENTS or held.nbytes >= ROW_GROUP_BYTES:
            yield held.slice(0, ROW_GROUP_EVENTS)
            held = held.slice(ROW_GROUP_EVENTS)
    if held.num_rows:
        yield held
