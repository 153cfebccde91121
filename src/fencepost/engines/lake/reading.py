"""Reading the files of a lake: record batches, and events made from them.

Row groups whose statistics exclude every wanted event are not read: positions are sorted, and a row group has few
types. Every page is checked against its checksum. tests/spark/test_lake.py compares this with the exported store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import StoreCorrupt
from ...model import SequencedEvent
from .columns import SCHEMA, values
from .files import existing_manifest
from .storage import Place, Storage, storage_of

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16_777_216  # of a batch, if its rows are of average size for their row group
COLUMNS: Final = tuple(SCHEMA.names)


def read_files(
    lake: Place, columns: Sequence[str], *, after: int, upto: int, types: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events with after < position <= upto. `types` only skips row groups; the caller filters the rest."""

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        for index in range(group.num_columns):
            column = group.column(index)
            found = column.statistics
            if found is None or not found.has_min_max:
                continue
            if column.path_in_schema == "position" and not (found.min <= upto and found.max > after):
                return False
            if column.path_in_schema == "type" and types is not None:
                wanted = any(found.min <= type <= found.max for type in types)
                if not wanted:
                    return False
        return True

    storage = storage_of(lake)
    names = list(dict.fromkeys([*columns, "position"]))
    for file in existing_manifest(storage).files:
        if file.overlaps(after, upto):
            for batch in _checked_batches(storage, file.path, names, may_hold):
                yield _within(batch, after, upto).select(list(columns))


def read_recorded(lake: Place, *, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """The recorded appends with after < last <= upto."""
    storage = storage_of(lake)
    for file in existing_manifest(storage).files:
        if file.appends is None or not file.overlaps(after, upto):
            continue
        for batch in _checked_batches(storage, file.appends.path, None, lambda group: True):
            last = batch.column("last")
            within = batch.filter(pc.and_(pc.greater(last, after), pc.less_equal(last, upto)))
            if within.num_rows:
                yield within


def events_of(batch: pa.RecordBatch) -> Iterator[SequencedEvent]:
    """The rows of a batch with all columns, as events; times and ids stay in the stored form, which is faster."""
    return map(
        SequencedEvent,
        values(batch.column("position")),
        values(batch.column("type")),
        _sets(batch.column("tags")),
        values(batch.column("data")),
        values(batch.column("recorded_at").cast(pa.int64())),
        _ids(batch.column("id")),
        _maps(batch.column("metadata")),
    )


def _checked_batches(
    storage: Storage, path: str, columns: Sequence[str] | None, may_hold: Callable[[pq.RowGroupMetaData], bool]
) -> Iterator[pa.RecordBatch]:
    """The batches of a file's chosen row groups; raises `StoreCorrupt` for a wrong checksum or missing rows.

    A page's header has no checksum, and the reader skips a page that claims to be of another kind: hence the count
    of rows. Text is validated because files of earlier versions have no checksums.
    """
    try:
        # In an object store each read is a request, so the pages of a row group are read together.
        together = not storage.is_locked
        with (
            storage.source(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=together) as parquet,
        ):
            groups = [
                number for number in range(parquet.num_row_groups) if may_hold(parquet.metadata.row_group(number))
            ]
            missing = 0
            for number in groups:
                group = parquet.metadata.row_group(number)
                missing += group.num_rows
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
                for batch in parquet.iter_batches(rows, row_groups=[number], columns=columns):
                    batch.validate(full=True)
                    missing -= batch.num_rows
                    yield batch
            if missing:
                raise pa.ArrowInvalid(f"{missing} rows fewer than its own footer says")
    except (OSError, pa.ArrowException) as error:
        raise StoreCorrupt(f"{storage.name(path)}: {error}; run `fencepost lake verify`") from None


def _within(batch: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    """The rows in the range: a slice, because rows are sorted by position."""
    positions = batch.column("position")

    def count_upto(position: int) -> int:
        return bisect_right(range(len(positions)), position, key=lambda index: positions[index].as_py())

    low = count_upto(after)
    return batch.slice(low, count_upto(upto) - low)


def _sets(column: pa.ListArray) -> Iterator[frozenset[str]]:
    members = values(column.values)
    return (frozenset(members[begin:end]) for begin, end in pairwise(values(column.offsets)))


def _ids(column: pa.StringArray) -> Iterator[bytes | None]:
    digits = values(pc.replace_substring(column, "-", ""))
    return (None if text is None else bytes.fromhex(text) for text in digits)


def _maps(column: pa.MapArray) -> Iterator[dict[str, str] | None]:
    pairs = list(zip(values(column.keys), values(column.items), strict=True))
    return (dict(pairs[begin:end]) if begin < end else None for begin, end in pairwise(values(column.offsets)))
