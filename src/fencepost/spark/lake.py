"""The log as Parquet files that prove themselves: export, verify, restore, and keep current.

Spark spreads the work, the workers write the files. A chunk is a range of positions; its file is
written under a passing name, synced, hashed, and only then given its own name. The driver adds
the chunks of a finished round to the manifest in one step. So an export that is killed is started
again and goes on after the last round, and nothing that the manifest names ever changes. What it does
not name is removed first, so that whoever reads all the files of a folder counts no event twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ..errors import InvalidInput, StoreCorrupt, StoreUnavailable
from ..model import checked_position
from ..store import EventStore
from .arrow import to_spark
from .lake_files import (
    APPENDS,
    EVENTS,
    MANIFEST,
    SCHEMA,
    AppendsFile,
    LakeFile,
    Manifest,
    exporting,
    file_name,
    problem_of,
    read_manifest,
    sha256_of,
    strays,
    write_manifest,
)
from .lake_restore import restore as restore
from .lake_scan import COLUMNS, events_of, read_files
from .locking import PATIENCE_S, patiently
from .options import absolute
from .recorded import SCHEMA as RECORDED
from .reporting import reporting
from .scanning import Scan, scan_of
from .selection import Selection

CHUNK_EVENTS: Final = 250_000
ROW_GROUP_EVENTS: Final = 50_000  # what a filter on positions or types can pass over

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Exported:
    """What an export has done: everything up to `upto` is in the lake now."""

    files: int
    events: int
    upto: int


def export(
    spark: SparkSession,
    store: str,
    folder: str,
    *,
    upto: int | None = None,
    chunk: int = CHUNK_EVENTS,
    delta: bool = False,
    iceberg: bool = False,
    on_progress: Progress | None = None,
) -> Exported:
    """Bring the lake in the folder up to the store's head, or up to `upto`; it is made if need be.

    `delta` and `iceberg` keep a table of that kind over the same files. An export that is running is waited
    for, up to a minute.
    """
    if chunk < 1:
        raise InvalidInput("chunk", f"at least 1 event is needed, not {chunk}")
    scan = scan_of(absolute(store))
    target = Path(folder).absolute()
    with scan.open() as opened, patiently(partial(exporting, target), PATIENCE_S):
        head = opened.head()
        end = head if upto is None else min(checked_position(upto, "upto"), head)
        manifest = before = _begun(target)
        _check_same_log(opened, target, manifest)
        for path in strays(target, manifest):
            (target / path).unlink()
        chunks = cut(opened, manifest.upto, end, chunk, gaps=store.startswith("fdb:"))
        while round := list(islice(chunks, _parallelism(spark))):
            files = _on_spark(spark, round, partial(_write_chunks, scan=scan, folder=str(target)))
            manifest = Manifest(files=(*manifest.files, *files))
            write_manifest(target, manifest)
            if on_progress is not None:
                on_progress(manifest.upto, end)
        _sync_tables(target, manifest, delta=delta, iceberg=iceberg)
    return Exported(len(manifest.files) - len(before.files), manifest.rows - before.rows, manifest.upto)


def _begun(folder: Path) -> Manifest:
    """The manifest; an empty one, on disk before any file is, if the lake is new."""
    if (folder / MANIFEST).exists():
        return read_manifest(folder)
    manifest = Manifest()
    if strays(folder, manifest):
        raise StoreCorrupt(
            f"{folder}: there are files of a lake and no {MANIFEST}; bring it back, or move the files away"
        )
    write_manifest(folder, manifest)
    return manifest


def _sync_tables(target: Path, manifest: Manifest, *, delta: bool, iceberg: bool) -> None:
    if delta:
        from .lake_tables import sync_delta

        sync_delta(target, manifest)
    if iceberg:
        from .lake_tables import sync_iceberg

        sync_iceberg(target, manifest)


def verify(spark: SparkSession, folder: str) -> list[str]:
    """What is wrong with the lake, a sentence for each file; nothing when everything is as the manifest says."""
    target = Path(folder).absolute()
    try:
        manifest = read_manifest(target)
    except StoreCorrupt as error:
        return [str(error)]
    problems = _left_over(target)
    todo = iter(manifest.files)
    while round := list(islice(todo, 4 * _parallelism(spark))):
        found = _on_spark(spark, round, partial(_verify_files, folder=str(target)))
        problems += [f"{file.path}: {file.sha256}" for file in found if file.sha256]
    return problems


def _left_over(folder: Path) -> list[str]:
    """A sentence for each file that the manifest does not name; none while an export runs, whose own they may be."""
    try:
        with exporting(folder):
            left = strays(folder, read_manifest(folder))
    except (StoreUnavailable, OSError):  # a folder that cannot be written to has no lock
        return []
    return [f"{path}: the manifest does not name it; the next export removes it" for path in left]


def cut(store: EventStore, after: int, upto: int, chunk: int, *, gaps: bool) -> Iterator[tuple[int, int]]:
    """Ranges of about `chunk` events. Without gaps they end at multiples of it, wherever an export began."""
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


def _check_same_log(store: EventStore, folder: Path, manifest: Manifest) -> None:
    """Refuse to mix two logs: where both have come, their last common event is the same."""
    common = min(manifest.upto, store.head())
    if common == 0:
        return
    (stored,) = store.read(after=common - 1, upto=common)
    for batch in read_files(folder, Selection(common - 1, common), COLUMNS):
        for kept in events_of(batch):
            if kept != stored:
                raise InvalidInput(
                    "folder", f"{folder} holds another log: its event at position {common} is not the store's"
                )


def _parallelism(spark: SparkSession) -> int:
    """How many tasks run at once. Spark Connect does not say; then a few rounds more are no harm."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:
        return 4


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_WIRE: Final = "line string"
_WIRE_ARROW: Final = pa.schema([("line", pa.string())])


def _on_spark(spark: SparkSession, inputs: Sequence[object], work: Work) -> list[LakeFile]:
    """A task for each input; what they give back, in order of position."""
    lines = [(msgspec.json.encode(each).decode(),) for each in inputs]
    given = spark.createDataFrame(lines, _WIRE).repartition(len(lines))
    found = [msgspec.json.decode(row["line"], type=LakeFile) for row in given.mapInArrow(work, _WIRE).collect()]
    return sorted(found, key=lambda file: file.after)


def _write_chunks(batches: Iterator[pa.RecordBatch], scan: Scan, folder: str) -> Iterator[pa.RecordBatch]:
    """In a worker: a file for each range."""
    with reporting():
        for batch in batches:
            for line in batch.column("line").to_pylist():
                after, upto = msgspec.json.decode(line, type=tuple[int, int])
                file = write_chunk(scan, Path(folder), after, upto)
                yield pa.RecordBatch.from_pylist([{"line": msgspec.json.encode(file).decode()}], schema=_WIRE_ARROW)


def write_chunk(scan: Scan, folder: Path, after: int, upto: int) -> LakeFile:
    path = file_name(EVENTS, after, upto)
    first = last = rows = 0
    with _drafted(folder / path) as draft:
        with pq.ParquetWriter(
            draft,
            SCHEMA,
            compression="zstd",
            use_dictionary=["type", "tags.list.element", "metadata.key_value.key"],
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
    appends = _write_appends(scan, folder, after, upto)
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


def _write_appends(scan: Scan, folder: Path, after: int, upto: int) -> AppendsFile | None:
    """The recorded appends that end in the range, in a file beside; None where nothing was recorded."""
    batches = scan.recorded(after, upto)
    begun = next(batches, None)
    if begun is None:
        return None
    path = file_name(APPENDS, after, upto)
    rows = 0
    with _drafted(folder / path) as draft:
        with pq.ParquetWriter(draft, RECORDED, compression="zstd", write_page_checksum=True) as writer:
            for batch in chain([begun], batches):
                writer.write_batch(batch)
                rows += batch.num_rows
        return AppendsFile(path=path, rows=rows, bytes=draft.stat().st_size, sha256=sha256_of(draft))


@contextmanager
def _drafted(target: Path) -> Iterator[Path]:
    """A file that gets its name when it is whole and on disk."""
    target.parent.mkdir(exist_ok=True)
    draft = target.with_name(f".{uuid4().hex}")
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _row_groups(scan: Scan, after: int, upto: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for stored in scan.batches(Selection(after, upto), COLUMNS):
        held.append(to_spark(stored, SCHEMA))
        while sum(batch.num_rows for batch in held) >= ROW_GROUP_EVENTS:
            table = pa.Table.from_batches(held, SCHEMA)
            yield table.slice(0, ROW_GROUP_EVENTS)
            held = table.slice(ROW_GROUP_EVENTS).to_batches()
    if held:
        yield pa.Table.from_batches(held, SCHEMA)


def _verify_files(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """In a worker: each file as it was given, with what is wrong with it in the place of its checksum."""
    for batch in batches:
        for line in batch.column("line").to_pylist():
            file = msgspec.json.decode(line, type=LakeFile)
            judged = msgspec.structs.replace(file, sha256=problem_of(Path(folder), file))
            yield pa.RecordBatch.from_pylist([{"line": msgspec.json.encode(judged).decode()}], schema=_WIRE_ARROW)
