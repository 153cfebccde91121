"""Reading the files of a lake: record batches, and events made from them.

Row groups whose statistics exclude every wanted event are not read: positions are sorted, and a row group has few
types. Every page is checked against its checksum, the rows are counted, and text is validated. Damage raises
`StoreCorrupt`, which names the file; no reader sees another answer. tests/spark/test_lake.py compares this with the
exported store, and damages files.

A recorded append is kept in the row of its last event: the position of its first event, and its conditions.
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

from ... import SequencedEvent
from ...engine import RecordedAppend, encode_metadata, encode_tags
from ...errors import StoreCorrupt
from .columns import EVENT, RECORDED, values
from .files import Lake

COLUMNS: Final = tuple(EVENT.names)


def read_files(
    lake: Lake, columns: Sequence[str], *, after: int, up_to: int, types: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events with after < position <= up_to. `types` only skips row groups; the caller filters the rest."""

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        for index in range(group.num_columns):
            column = group.column(index)
            found = column.statistics
            if found is None or not found.has_min_max:
                continue
            if column.path_in_schema == "position" and not (found.min <= up_to and found.max > after):
                return False
            if column.path_in_schema == "type" and types is not None:
                wanted = any(found.min <= type <= found.max for type in types)
                if not wanted:
                    return False
        return True

    names = list(dict.fromkeys([*columns, "position"]))
    for file in lake.files:
        if file.overlaps(after, up_to):
            for batch in lake.table.batches(file.path, names, may_hold):
                yield _within(batch, after, up_to).select(list(columns))


def read_recorded(lake: Lake, *, after: int, up_to: int) -> Iterator[pa.RecordBatch]:
    """The recorded appends with after < last <= up_to, with the columns of `RECORDED`."""
    columns = ["append_first", "position", "append_conditions", "append_unless"]
    for batch in read_files(lake, columns, after=after, up_to=up_to):
        found = batch.filter(pc.is_valid(batch.column("append_first")))
        if found.num_rows:
            yield pa.RecordBatch.from_arrays(found.columns, schema=RECORDED)


def appends_of(batch: pa.RecordBatch) -> Iterator[RecordedAppend]:
    return map(RecordedAppend, *(batch.column(name).to_pylist() for name in RECORDED.names))


def read_events(lake: Lake, *, after: int, up_to: int) -> Iterator[SequencedEvent]:
    """The events with after < position <= up_to, in stored form."""
    return chain.from_iterable(map(events_of, read_files(lake, COLUMNS, after=after, up_to=up_to)))


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


def _within(batch: pa.RecordBatch, after: int, up_to: int) -> pa.RecordBatch:
    """The rows in the range: a slice, because rows are sorted by position."""
    positions = batch.column("position")

    def count_up_to(position: int) -> int:
        return bisect_right(range(len(positions)), position, key=lambda index: positions[index].as_py())

    low = count_up_to(after)
    return batch.slice(low, count_up_to(up_to) - low)


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
