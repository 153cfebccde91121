"""Reading the files of a lake: record batches, and events made from them.

Row groups whose statistics exclude every wanted event are not read: positions are sorted, and a row group has few
types. Every page is checked against its checksum (`fencepost.storage.parquet`). tests/spark/test_lake.py compares this
with the exported store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import StoreCorrupt
from ...model import SequencedEvent, encode_metadata, encode_tags
from ...storage import Storage
from ...storage.parquet import checked_batches
from .columns import SCHEMA, values
from .files import existing_manifest

COLUMNS: Final = tuple(SCHEMA.names)


def read_files(
    storage: Storage, columns: Sequence[str], *, after: int, upto: int, types: Collection[str] | None = None
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

    names = list(dict.fromkeys([*columns, "position"]))
    for file in existing_manifest(storage).files:
        if file.overlaps(after, upto):
            for batch in checked_batches(storage, file.path, names, may_hold):
                yield _within(batch, after, upto).select(list(columns))


def read_recorded(storage: Storage, *, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """The recorded appends with after < last <= upto."""
    for file in existing_manifest(storage).files:
        if file.appends is None or not file.overlaps(after, upto):
            continue
        for batch in checked_batches(storage, file.appends.path, None):
            last = batch.column("last")
            within = batch.filter(pc.and_(pc.greater(last, after), pc.less_equal(last, upto)))
            if within.num_rows:
                yield within


def read_events(storage: Storage, *, after: int, upto: int) -> Iterator[SequencedEvent]:
    """The events with after < position <= upto, in stored form."""
    return chain.from_iterable(map(events_of, read_files(storage, COLUMNS, after=after, upto=upto)))


def events_of(batch: pa.RecordBatch) -> Iterator[SequencedEvent]:
    """The rows of a batch with all columns, as events in stored form, which is the fastest to copy and to restore."""
    return map(
        SequencedEvent,
        values(batch.column("position")),
        values(batch.column("type")),
        _tags(batch.column("tags")),
        values(batch.column("data")),
        values(batch.column("recorded_at").cast(pa.int64())),
        _ids(batch.column("id")),
        _metadata(batch.column("metadata")),
    )


def _within(batch: pa.RecordBatch, after: int, upto: int) -> pa.RecordBatch:
    """The rows in the range: a slice, because rows are sorted by position."""
    positions = batch.column("position")

    def count_upto(position: int) -> int:
        return bisect_right(range(len(positions)), position, key=lambda index: positions[index].as_py())

    low = count_upto(after)
    return batch.slice(low, count_upto(upto) - low)


def _tags(column: pa.ListArray) -> list[str]:
    """The tags of each event in stored form: sorted JSON."""
    if _are_plain(column.flatten()) and _are_sorted(column):  # then Arrow makes the texts, several times as fast
        return [f'["{names}"]' if names else "[]" for names in values(pc.binary_join(column, '","'))]
    members = values(column.values)
    if column.flatten().null_count:
        raise StoreCorrupt("a file of the lake has an event with a tag that is null; run `fencepost lake verify`")
    return [encode_tags(set(members[begin:end])) for begin, end in pairwise(values(column.offsets))]


def _are_plain(names: pa.StringArray) -> bool:
    """Whether all names are in JSON as they are: none is missing or empty, and none has a character to escape."""
    if names.null_count or pc.min(pc.binary_length(names)).as_py() == 0:
        return False
    _, offsets, content = names.buffers()
    if content is None:  # there are no names
        return True
    begin, end = np.frombuffer(offsets, np.int32)[[names.offset, names.offset + len(names)]]
    characters = np.frombuffer(content, np.uint8)[begin:end]
    return not ((characters < 0x20) | (characters == ord('"')) | (characters == ord("\\"))).any()


def _are_sorted(column: pa.ListArray) -> bool:
    """Whether the members of each list grow. Arrow compares bytes, and UTF-8 sorts as the code points do."""
    names, offsets = column.flatten(), column.offsets.to_numpy()
    grows = pc.less(names[:-1], names[1:]).to_numpy(zero_copy_only=False)
    return bool(np.isin(np.flatnonzero(~grows) + 1, offsets - offsets[0]).all())


def _ids(column: pa.StringArray) -> Iterator[bytes | None]:
    digits = values(pc.replace_substring(column, "-", ""))
    return (None if text is None else bytes.fromhex(text) for text in digits)


def _metadata(column: pa.MapArray) -> Iterator[str | None]:
    pairs = list(zip(values(column.keys), values(column.items), strict=True))
    return (
        encode_metadata(dict(pairs[begin:end])) if begin < end else None
        for begin, end in pairwise(values(column.offsets))
    )
