"""Exporting the log to a lake.

The workers write the files, each with a range of positions. The driver adds the files of a finished round to the
manifest in one step. So an export that was killed continues after its last round when it is started again, and a file
that the manifest lists never changes. Files that a killed export has left are removed first. Small files are merged at
the end (`compacting`), so their number stays bounded however often an export runs.

`follow` is a stream of the log whose batches are exports. Spark's checkpoint says which positions the stream has
planned, the manifest which are exported. A batch exports the events that the lake lacks up to the batch's end, so a
repeated batch does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ...engines.lake.files import (
    MANIFEST,
    LakeFile,
    LakeManifest,
    read_lake_manifest,
    strays,
    write_lake_manifest,
)
from ...engines.lake.retiring import RETAIN_S
from ...errors import InvalidInput, StoreCorrupt
from ...storage import Storage
from ...store import EventStore
from ..basics import PATIENCE_S, Batch, Store, address_of, bounds_of, changing, follow_ranges, parallelism
from ..scanning import check_same_log, scan_of
from .compacting import compacted, tidy_up
from .rounds import CHUNK_EVENTS, exporting, lake_storage, on_spark
from .tables import chosen_tables, sync
from .writing import write_chunk


@dataclass(frozen=True)
class Exported:
    """The result of an export: the lake now holds every event up to `upto`."""

    files: int
    events: int
    upto: int


def export(
    spark: SparkSession,
    store: Store,
    folder: str,
    *,
    upto: int | None = None,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    iceberg_catalog: str | None = None,
    iceberg_table: str | None = None,
    compact: bool = True,
    retain_s: float = RETAIN_S,
    on_progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Add the events that the lake in the folder lacks, up to the store's head or `upto`; create the lake if needed.

    The folder may be a prefix in an object store, such as `s3://bucket/lake`. `delta` and `iceberg` maintain a table
    of that kind over the same files. `iceberg_catalog` names a catalog of pyiceberg's configuration, which an object
    store needs, and `iceberg_table` the table in it. With `compact`, small files are merged; the files that they
    replace stay for `retain_s` seconds, for readers that still use them. If another export is running, wait for it, for
    at most a minute.
    """
    if chunk < 1:
        raise InvalidInput("chunk", f"at least 1 event is needed, not {chunk}")
    address, upto = bounds_of(store, upto)
    scan = scan_of(address)
    target = lake_storage(folder)
    tables = chosen_tables(
        target, delta=delta, iceberg=iceberg, iceberg_catalog=iceberg_catalog, iceberg_table=iceberg_table
    )
    added: list[LakeFile] = []

    def work(opened: EventStore) -> LakeManifest:
        head = opened.head()
        end = head if upto is None else min(upto, head)
        manifest = _begun(target)
        check_same_log(opened, target, manifest, "folder")
        manifest = tidy_up(target, manifest, retain_s=retain_s)
        chunks = cut(opened, manifest.upto, end, chunk, gaps=address.kind.has_gaps)
        while round := list(islice(chunks, parallelism(spark))):
            files = on_spark(spark, round, lambda range: write_chunk(scan, target, *range))
            manifest = msgspec.structs.replace(manifest, files=(*manifest.files, *files))
            manifest = write_lake_manifest(target, manifest)
            added.extend(files)
            if on_progress is not None:
                on_progress(manifest.upto, end)
        sync(tables, target, manifest)
        if compact:
            merged = compacted(spark, target, manifest, chunk=chunk, retain_s=retain_s)
            if merged is not manifest:
                sync(tables, target, merged)
        return manifest

    with scan.open() as opened:
        manifest = changing(partial(exporting, target), partial(work, opened), PATIENCE_S)
    return Exported(len(added), sum(file.rows for file in added), manifest.upto)


def follow(
    spark: SparkSession,
    store: Store,
    folder: str,
    *,
    checkpoint: str,
    name: str | None = None,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    iceberg_catalog: str | None = None,
    iceberg_table: str | None = None,
    compact: bool = True,
    retain_s: float = RETAIN_S,
    **trigger: Any,
) -> StreamingQuery:
    """Export now and whenever the log grows, as a streaming query.

    `trigger` is Spark's: `processingTime="1 minute"`, or `availableNow=True` to end when the lake is current. `name` is
    the query's name. The other options are those of `export`: small files are merged, so that their number stays
    bounded.
    """
    address = address_of(store)
    export(spark, address, folder, upto=0)  # from now on the lake can be read
    options: dict[str, Any] = {
        "chunk": chunk,
        "delta": delta,
        "iceberg": iceberg,
        "iceberg_catalog": iceberg_catalog,
        "iceberg_table": iceberg_table,
        "compact": compact,
        "retain_s": retain_s,
    }

    def export_batch(session: SparkSession, batch: Batch) -> None:
        export(session, address, folder, upto=batch.upto, **options)

    return follow_ranges(
        spark, address, export_batch, checkpoint=checkpoint, name=name, max_events=chunk, trigger=trigger
    )


def _begun(lake: Storage) -> LakeManifest:
    """The manifest. For a new lake an empty one, which is written before any file."""
    found = read_lake_manifest(lake)
    if found is not None:
        return found
    manifest = LakeManifest()
    if strays(lake, manifest):
        found = read_lake_manifest(lake)  # in an object store, another process may just have created the lake
        if found is not None:
            return found
        raise StoreCorrupt(
            f"{lake.name()}: it has files of a lake and no {MANIFEST}; restore the manifest, or move the files away"
        )
    return write_lake_manifest(lake, manifest)


def cut(store: EventStore, after: int, upto: int, chunk: int, *, gaps: bool) -> Iterator[tuple[int, int]]:
    """Ranges of about `chunk` events. Without gaps they end at multiples of `chunk`, wherever an export began."""
    while after < upto:
        if gaps:
            reading = store.read(after=after, upto=upto, limit=chunk)
            for _ in reading:
                pass
            border = reading.head
        else:
            border = min((after // chunk + 1) * chunk, upto)
        yield after, border
        after = border
