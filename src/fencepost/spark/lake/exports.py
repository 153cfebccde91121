"""Exporting the log to a lake.

The workers write the files, each with a range of positions. The driver adds the files of a finished round to the
table in one commit, which carries the position and the digest of the event there. So an export that was killed
continues after its last round when it is started again. Small files are merged at the end (`compaction`), so their
number stays bounded however often an export runs. Of two exports that run at once, one commits; the other begins again
with what is then missing.

`follow` is a stream of the log whose batches are exports. Spark's checkpoint says which positions the stream has
planned, the table which are exported. A batch exports the events that the lake lacks up to the batch's end, so a
repeated batch does nothing. tests/spark/test_lake.py and tests/spark/slow/test_lake_kills.py check this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ... import EventStore
from ...engine import checked_position
from ...errors import InvalidInput, StoreCorrupt
from ..basics import Batch, Store, address_of, bounds_of, follow_ranges, parallelism
from ..delta import PATIENCE_S, Change, FileTable, changing
from ..lake_engine.columns import SCHEMA
from ..lake_engine.files import EVENTS, Lake, LakeFile, is_ours, lake_at, lake_of
from ..location import absolute_location
from ..scanning import check_same_log, digest_at, scan_of
from .compaction import CHUNK_EVENTS, RETAIN_HOURS, merged, remove_unused
from .writer import export_range, on_spark

TABLE: Final = "events"


@dataclass(frozen=True)
class Exported:
    """The result of an export: the lake now holds every event up to `up_to`."""

    files: int
    events: int
    up_to: int


def export(
    spark: SparkSession,
    store: Store,
    folder: str,
    *,
    up_to: int | None = None,
    chunk: int = CHUNK_EVENTS,
    compact: bool = True,
    retain_hours: int = RETAIN_HOURS,
    on_progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Add the events that the lake in the folder lacks, up to the store's head or `up_to`; create the lake if needed.

    The folder may be a prefix in an object store, such as `s3://bucket/lake`. With `compact`, small files are merged;
    the files that they replace stay for `retain_hours`, for readers that still use them.
    """
    if chunk < 1:
        raise InvalidInput("chunk", f"at least 1 event is needed, not {chunk}")
    address, up_to = bounds_of(store, up_to)
    scan = scan_of(address)
    table = FileTable(absolute_location(folder, "folder"))
    added: list[LakeFile] = []

    def work(opened: EventStore) -> Lake:
        head = opened.head()
        end = head if up_to is None else min(up_to, head)
        lake = _begun(table)
        check_same_log(opened, lake, "folder")
        remove_unused(lake, retain_hours)
        chunks = cut(opened, lake.up_to, end, chunk, gaps=address.kind.has_gaps)
        while round := list(islice(chunks, parallelism(spark))):
            files = on_spark(spark, round, lambda range: export_range(scan, table, *range))
            position = files[-1].up_to
            lake = lake_of(table, table.commit(lake.state, Change(files, (), position, digest_at(opened, position))))
            added.extend(files)
            if on_progress is not None:
                on_progress(lake.up_to, end)
        return merged(spark, lake, chunk=chunk, retain_hours=retain_hours) if compact else lake

    with scan.open() as opened:
        lake = changing(partial(work, opened), PATIENCE_S)
    return Exported(len(added), sum(file.rows for file in added), lake.up_to)


def follow(
    spark: SparkSession,
    store: Store,
    folder: str,
    *,
    checkpoint: str,
    name: str | None = None,
    chunk: int = CHUNK_EVENTS,
    compact: bool = True,
    retain_hours: int = RETAIN_HOURS,
    **trigger: Any,
) -> StreamingQuery:
    """Export now and whenever the log grows, as a streaming query.

    `trigger` is Spark's: `processingTime="1 minute"`, or `availableNow=True` to end when the lake is current. `name` is
    the query's name. The other options are those of `export`: small files are merged, so that their number stays
    bounded.
    """
    address = address_of(store)
    export(spark, address, folder, up_to=0)  # from now on the lake can be read

    def export_batch(session: SparkSession, batch: Batch) -> None:
        export(session, address, folder, up_to=batch.up_to, chunk=chunk, compact=compact, retain_hours=retain_hours)

    return follow_ranges(
        spark, address, export_batch, checkpoint=checkpoint, name=name, max_events=chunk, trigger=trigger
    )


def table_version(folder: str, position: int) -> int:
    """The first version of the lake's Delta table that covers the position.

    Read the table at that version, where `position` is at most the position, to see the log as it was. Delta keeps
    versions for 30 days, unless the table's property `delta.logRetentionDuration` says otherwise.
    """
    checked_position(position, "position")
    lake = lake_at(absolute_location(folder, "folder"))
    found = [version for version in lake.state.versions() if version.position >= position]
    if not found:
        raise InvalidInput("position", f"{position} is above the lake's position, {lake.up_to}")
    return found[-1].number


def _begun(table: FileTable) -> Lake:
    """The lake, which is created if there is none."""
    state = table.state()
    if state is None and any(map(is_ours, table.listed(EVENTS))):
        state = table.state()  # another process may just have created it
        if state is None:
            raise StoreCorrupt(
                f"{table.location}: it has files of a lake and no _delta_log; restore that folder, or move the files "
                "away"
            )
    return lake_of(table, table.create(SCHEMA, TABLE, {}) if state is None else state)


def cut(store: EventStore, after: int, up_to: int, chunk: int, *, gaps: bool) -> Iterator[tuple[int, int]]:
    """Ranges of about `chunk` events. Without gaps they end at multiples of `chunk`, wherever an export began."""
    while after < up_to:
        if gaps:
            reading = store.read(after=after, up_to=up_to, limit=chunk)
            for _ in reading:
                pass
            border = reading.head
        else:
            border = min((after // chunk + 1) * chunk, up_to)
        yield after, border
        after = border
