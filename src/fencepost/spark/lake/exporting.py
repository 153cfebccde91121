"""Exporting the log to a lake.

The workers write the files, each with a range of positions. The driver adds the files of a finished round to the
manifest in one step. So an export that was killed continues after its last round when it is started again, and a file
that the manifest lists never changes. Files that a killed export has left are removed first. Small files are merged at
the end (`compacting`), so their number stays bounded however often an export runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

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
from ..basics import PATIENCE_S, Store, bounds_of, changing
from ..scanning import Scan, check_same_log, scan_of
from .compacting import compacted, merge_on_spark, tidy_up
from .rounds import CHUNK_EVENTS, exporting, lake_storage, lines, on_spark, parallelism
from .tables import LakeTables
from .writing import write_chunk

Progress = Callable[[int, int], None]


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
    on_progress: Progress | None = None,
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
    tables = LakeTables.chosen(
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
            files = on_spark(spark, round, partial(_write_chunk, scan, target))
            manifest = msgspec.structs.replace(manifest, files=(*manifest.files, *files))
            manifest = write_lake_manifest(target, manifest)
            added.extend(files)
            if on_progress is not None:
                on_progress(manifest.upto, end)
        tables.sync(target, manifest)
        if compact:
            merged = compacted(target, manifest, partial(merge_on_spark, spark, target), chunk=chunk, retain_s=retain_s)
            if merged is not manifest:
                tables.sync(target, merged)
        return manifest

    with scan.open() as opened:
        manifest = changing(partial(exporting, target), partial(work, opened), PATIENCE_S)
    return Exported(len(added), sum(file.rows for file in added), manifest.upto)


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


def _write_chunk(scan: Scan, lake: Storage, range: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Write the file of a range, and return its entry for the manifest; in a worker."""
    yield lines(write_chunk(scan, lake, *range))
