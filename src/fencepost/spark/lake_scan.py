"""Reading a lake: `store=lake:<folder>` wherever a store can be named.

`LakeEngine` makes it a store that can be read and not written; workers read the files themselves.
Row groups whose statistics exclude them are never touched: positions are sorted, and the types of
a row group are few. What is read is held to the files' own checksums.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..buckets import matches
from ..commit import Append
from ..errors import StoreCorrupt, StoreError
from ..model import Query, RecordedAppend, SequencedEvent
from ..store import EventStore
from .arrow import values
from .lake_files import LakeFile, read_manifest
from .selection import Selection

BATCH_ROWS: Final = 16_384
PAGE_EVENTS: Final = 1_024
COLUMNS: Final = ("position", "type", "tags", "data", "recorded_at", "id", "metadata")


@dataclass(frozen=True)
class LakeScan:
    folder: str

    def open(self) -> EventStore:
        return EventStore(LakeEngine(Path(self.folder)))

    def borders(self, store: EventStore, selection: Selection, parts: int) -> Sequence[int]:
        """By the rows that the manifest counts, which need not be spread evenly over the positions."""
        files = [file for file in read_manifest(Path(self.folder)).files if _overlaps(file, selection)]
        total = sum(file.rows for file in files)
        borders, seen = [], 0
        for file in files:
            for part in range(1, parts):
                wanted = total * part // parts
                if seen < wanted <= seen + file.rows:
                    border = file.after + (file.upto - file.after) * (wanted - seen) // file.rows
                    borders.append(min(max(border, selection.after), selection.upto))
            seen += file.rows
        return sorted(set(borders))

    def recorded(self, after: int, upto: int) -> Iterator[pa.RecordBatch]:
        return read_recorded(Path(self.folder), after, upto)

    def batches(self, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        query = selection.query
        wanted = list(dict.fromkeys([*columns, "position", "type", "tags"] if not query.matches_all else columns))
        for batch in read_files(Path(self.folder), selection, wanted):
            if not query.matches_all:
                batch = _matching(batch, query)
            if batch.num_rows:
                yield batch.select(list(columns))


def read_recorded(folder: Path, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """The recorded appends with after < last <= upto."""
    for file in read_manifest(folder).files:
        if file.appends is None or not _overlaps(file, Selection(after, upto)):
            continue
        for batch in _proven(folder / file.appends.path):
            last = batch.column("last")
            within = batch.filter(pc.and_(pc.greater(last, after), pc.less_equal(last, upto)))
            if within.num_rows:
                yield within


def read_files(folder: Path, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of the selection's range; row groups that cannot hold a selected event are passed over."""
    names = list(dict.fromkeys([*columns, "position"]))
    for file in read_manifest(folder).files:
        if _overlaps(file, selection):
            for batch in _proven(folder / file.path, selection, names):
                yield _within(batch, selection).select(list(columns))


def _proven(
    path: Path, selection: Selection | None = None, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of a file, each page held to its checksum; an error at the end if rows were missing.

    A page's own header has no checksum, and a page that claims to be of another kind is passed over: hence
    the count. Text is looked at since files of earlier versions have no checksums at all.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
            groups = [
                group
                for group in range(parquet.num_row_groups)
                if selection is None or _may_hold(parquet, group, selection)
            ]
            missing = sum(parquet.metadata.row_group(group).num_rows for group in groups)
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
                batch.validate(full=True)
                missing -= batch.num_rows
                yield batch
            if missing:
                raise pa.ArrowInvalid(f"{missing} rows less than its own footer says")
    except (OSError, pa.ArrowException) as error:
        raise StoreCorrupt(f"{path}: {error}; run `fencepost lake verify`") from None


def _overlaps(file: LakeFile, selection: Selection) -> bool:
    return file.first <= selection.upto and file.last > selection.after


def _may_hold(parquet: pq.ParquetFile, group: int, selection: Selection) -> bool:
    row_group = parquet.metadata.row_group(group)
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        if column.path_in_schema == "position" and not (
            statistics.min <= selection.upto and statistics.max > selection.after
        ):
            return False
        if (
            column.path_in_schema == "type"
            and selection.types is not None
            and not any(statistics.min <= type <= statistics.max for type in selection.types)
        ):
            return False
    return True


def _within(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """The rows in the range; they are sorted, so it is a slice."""
    positions = batch.column("position")
    low = _count_upto(positions, selection.after)
    high = _count_upto(positions, selection.upto)
    return batch.slice(low, high - low)


def _count_upto(positions: pa.Array, position: int) -> int:
    return bisect_right(range(len(positions)), position, key=lambda index: positions[index].as_py())


def _matching(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    kept = [
        any((not item.types or type in item.types) and item.tags <= set(tags) for item in query.items)
        for type, tags in zip(batch.column("type").to_pylist(), batch.column("tags").to_pylist(), strict=True)
    ]
    return batch.filter(pa.array(kept, type=pa.bool_()))


def events_of(batch: pa.RecordBatch) -> Iterator[SequencedEvent]:
    """The rows of a batch with all columns, as events; times and ids in the stored form, which is faster to make."""
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


def _sets(column: pa.ListArray) -> Iterator[frozenset[str]]:
    members = values(column.values)
    return (frozenset(members[begin:end]) for begin, end in pairwise(values(column.offsets)))


def _ids(column: pa.StringArray) -> Iterator[bytes | None]:
    digits = values(pc.replace_substring(column, "-", ""))
    return (None if text is None else bytes.fromhex(text) for text in digits)


def _maps(column: pa.MapArray) -> Iterator[dict[str, str] | None]:
    pairs = list(zip(values(column.keys), values(column.items), strict=True))
    return (dict(pairs[begin:end]) if begin < end else None for begin, end in pairwise(values(column.offsets)))


class LakeEngine:
    """The engine of a lake: a head and a scan. What would change it is refused."""

    group_commit: Final = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        read_manifest(folder)

    def head(self) -> int:
        return read_manifest(self._folder).upto

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if backwards:
            raise StoreError("a lake is read forwards; read backwards from the store that it came from")
        batches = read_files(self._folder, Selection(after, upto, query), COLUMNS)
        page: list[SequencedEvent] = []
        for event in chain.from_iterable(map(events_of, batches)):
            if limit == 0:
                break
            if matches(event, query):
                page.append(event)
                limit = None if limit is None else limit - 1
            if len(page) == PAGE_EVENTS:
                yield page
                page = []
        if page:
            yield page

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        from .recorded import appends_of

        for batch in read_recorded(self._folder, after, upto):
            yield list(appends_of(batch))

    def commit(self, appends: Sequence[Append]) -> NoReturn:
        raise StoreError(f"{self._folder}: a lake is read-only; append to the store that it came from")

    def wait(self, after: int, timeout_s: float) -> NoReturn:
        raise StoreError(f"{self._folder}: a lake has no subscriptions; subscribe to the store that it came from")

    def checkpoint(self, name: str) -> int:
        return 0

    def interrupt(self) -> None: ...

    def close(self) -> None: ...
