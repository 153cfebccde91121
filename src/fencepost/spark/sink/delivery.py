"""How a batch gets into the store once, however often Spark repeats it.

The append that stores a batch moves a checkpoint of the write in the same transaction. A batch that Spark replays
after a crash finds the checkpoint moved and is not stored again. A batch too large for one append is settled in the
staging folder and stored in chunks; each chunk moves the checkpoint by one.

A row with a condition of its own is an append of its own. Its id follows from the write, the batch and the row, so
storing it again finds it stored. A condition that failed once fails again, so a replay reaches the same verdicts.
Rejected rows are kept in a folder, with the position that they conflict with.

A settled batch is stored as it is. Duplicate ids are therefore found before: after the first chunk, the store could
only refuse the duplicate, and the write could never complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ... import Event, EventStore
from ... import open as open_store
from ...engine import MAX_APPEND_BYTES, MAX_EVENTS, SQLITE, Append, Conflict, append_each
from ...errors import CheckpointBehind, ConditionFailed, FencepostError, InvalidInput, StoreError
from ..basics import Options, reporting
from ..lake_kind import LAKE
from .rejection import rejections
from .rows import Row, check_columns, rows_of
from .staging import StagedRows, Staging, default_root

CHUNK_EVENTS: Final = 20_000
CHUNK_BYTES: Final = 33_554_432
ROW_APPENDS: Final = 1_000  # appends of one row each, judged in one go
STEPS: Final = 2**32  # checkpoint positions of one batch: batch n has those above n * STEPS, up to (n + 1) * STEPS


def writer_of(options: Options, schema: StructType, overwrite: bool, *, stream: bool) -> Writer:
    _check(options, schema, overwrite)
    write_id = stream_id(options) if stream else options.write_id or uuid4().hex
    origin = checkpoint_id(options) if stream and options.write_id is not None else None
    return Writer(delivery_of(options, write_id, named=stream or options.write_id is not None, origin=origin))


def delivery_of(options: Options, write_id: str, *, named: bool, origin: str | None = None) -> Delivery:
    return Delivery(options, Staging(options.staging or default_root(), options.store, write_id), named, origin)


class Writer(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Spark's writer of one batch, and of a stream, whose batches Spark numbers."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @reporting()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._delivery.stage(iterator)

    @reporting()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        self._delivery.deliver([message for message in messages if isinstance(message, StagedRows)], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        self._delivery.staging.discard()


@dataclass(frozen=True)
class Delivery:
    """One batch write, or one stream of writes: how its rows get into the store."""

    options: Options
    staging: Staging
    named: bool  # by the user or by a stream; a write without a name is never repeated
    origin: str | None = None  # names the checkpoint of a stream whose writeId the user has given

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        return self.staging.stage(batches, context.partitionId() if context is not None else 0)

    def deliver(self, parts: Sequence[StagedRows], batch: int) -> None:
        """Store the batch unless it is already stored; on the driver."""
        # A misspelled path must not create a store.
        existing = {"create": False} if self.options.store.kind is SQLITE else {}
        with open_store(self.options.store, **existing) as store:
            progress = store.checkpoint(self._checkpoint)
            self._check_origin(store, progress)
            done = progress - batch * STEPS
            if done > STEPS:
                later = batch + -(-done // STEPS) - 1
                raise StoreError(
                    f"write {self.staging.write_id!r} has stored batch {later} already, and Spark comes with batch "
                    f"{batch}: a stream with a new checkpoint needs a new writeId"
                )
            if done < STEPS:
                self._deliver(store, parts, batch, max(done, 0))
        self.staging.finish(batch)

    def _check_origin(self, store: EventStore, progress: int) -> None:
        """Refuse a stream whose writeId a stream with another checkpoint has used.

        Spark numbers the batches of each checkpoint from 0, so the batches of the two could not be told apart.
        """
        if self.origin is None:
            return
        claim = f"{self._checkpoint}/{self.origin}"
        if store.checkpoint(claim):
            return
        if progress:
            raise StoreError(
                f"write {self.staging.write_id!r} has stored rows for a stream with another checkpoint, and this one "
                "would be taken for it; give a stream with a new checkpoint a new writeId, or none"
            )
        store.append([], checkpoint=(claim, 1))

    def _deliver(self, store: EventStore, parts: Sequence[StagedRows], batch: int, done: int) -> None:
        rows = sum(part.rows for part in parts)
        fits = rows <= MAX_EVENTS and sum(part.data_bytes for part in parts) <= MAX_APPEND_BYTES
        if any(part.conditional for part in parts):
            self._store_row_by_row(store, parts, batch)
        elif fits and not self.staging.settled(batch):
            if rows:
                self._store_at_once(store, parts, batch)
        elif self.options.condition is not None:
            raise InvalidInput(
                "option 'condition'",
                f"it guards one append, and {rows} rows are too many for one: write fewer rows at a time",
            )
        else:
            self._store_in_chunks(store, parts, batch, done)

    def _store_at_once(self, store: EventStore, parts: Sequence[StagedRows], batch: int) -> None:
        rows = list(_rows(parts))
        target = (batch + 1) * STEPS
        try:
            store.append(
                _identified([row.event for row in rows]),
                self.options.condition,
                checkpoint=(self._checkpoint, target) if self.named else None,
            )
        except CheckpointBehind:
            pass  # a former driver of the same stream, which is still running, has stored it
        except ConditionFailed as error:
            if self.options.rejected is None or store.checkpoint(self._checkpoint) >= target:
                raise
            with rejections(self.options.rejected, self.staging.write_id, batch) as reject:
                for row in rows:
                    reject(row._replace(condition=error.condition), error.conflict.position)

    def _store_in_chunks(self, store: EventStore, parts: Sequence[StagedRows], batch: int, done: int) -> None:
        chunks = _chunks(_rows(self._settled(parts, batch)))
        stored = 0
        for index, (events, following) in enumerate(pairwise(chain(chunks, [[]]))):
            if index >= done:
                step = index + 1 if following else STEPS  # nothing follows on the last chunk
                try:
                    store.append(_identified(events), checkpoint=(self._checkpoint, batch * STEPS + step))
                except CheckpointBehind:
                    pass
                except FencepostError as error:
                    error.args = (
                        f"{error}; {stored} rows of this batch are stored, and the write goes on from there when it is "
                        f"repeated with .option('writeId', {self.staging.write_id!r})",
                    )
                    raise
            stored += len(events)

    def _store_row_by_row(self, store: EventStore, parts: Sequence[StagedRows], batch: int) -> None:
        assert self.options.rejected is not None  # a column of conditions without this option was refused by `_check`
        rows = enumerate(_rows(self._settled(parts, batch)))
        with rejections(self.options.rejected, self.staging.write_id, batch) as reject:
            while taken := list(islice(rows, ROW_APPENDS)):
                appends = [self._append_of(row, batch, index) for index, row in taken]
                for (_, row), verdict in zip(taken, append_each(store, appends), strict=True):
                    if isinstance(verdict, Conflict):
                        reject(row, verdict.position)
        # Not earlier: until the rejected rows are durable, a replay must reject them again.
        with suppress(CheckpointBehind):  # a former driver of the same stream has moved it
            store.append([], checkpoint=(self._checkpoint, (batch + 1) * STEPS))

    def _settled(self, parts: Sequence[StagedRows], batch: int) -> list[StagedRows]:
        if not self.staging.settled(batch):
            _check_ids(parts)
        return self.staging.settle(parts, batch)

    def _append_of(self, row: Row, batch: int, index: int) -> Append:
        event = row.event
        if event.id is None:
            event = _with_id(event, derived_id(self.staging.write_id, batch, index))
        return Append((event,), () if row.condition is None else (row.condition,))

    @property
    def _checkpoint(self) -> str:
        return f"spark/{self.staging.write_id}"


def derived_id(write_id: str, batch: int, index: int) -> UUID:
    """The same id whenever the same row of the same batch of the same write is stored."""
    return uuid5(NAMESPACE_URL, f"fencepost:spark/{write_id}/{batch}/{index}")


def stream_id(options: Options) -> str:
    """The id of this stream, the same after a restart.

    Spark numbers a stream's batches from 0 in each new checkpoint, and writes an id into the checkpoint: that id is
    the stream's.
    """
    if options.write_id is not None:
        return options.write_id
    if options.checkpoint_location is None:
        raise InvalidInput(
            "option 'checkpointLocation'",
            "missing; Spark keeps the stream's progress there: give each stream a folder of its own",
        )
    path = _metadata_of(options.checkpoint_location)
    try:
        return _id_in(path)
    except (OSError, KeyError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            "option 'writeId'",
            f"missing, and the stream's own id cannot be read from {path} ({error}): give each checkpoint a writeId",
        ) from None


def checkpoint_id(options: Options) -> str | None:
    """Names the checkpoint of a stream: by the id in it, or by its place if the driver cannot read it."""
    location = options.checkpoint_location
    if location is None:
        return None
    try:
        return _id_in(_metadata_of(location))
    except (OSError, KeyError, msgspec.MsgspecError):
        return sha256(location.rstrip("/").encode()).hexdigest()[:32]


def _metadata_of(location: str) -> Path:
    scheme, colon, rest = location.partition(":")
    return Path("/" + rest.lstrip("/") if colon and scheme == "file" else location) / "metadata"


def _id_in(path: Path) -> str:
    return str(msgspec.json.decode(path.read_bytes(), type=dict[str, str])["id"])


def _check(options: Options, schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise InvalidInput("mode", "a log only grows: write with .mode('append')")
    if options.store.kind is LAKE:
        raise InvalidInput("option 'store'", "a lake is written by `fencepost lake export` alone")
    check_columns(schema)
    if "condition" in schema.fieldNames():
        if options.rejected is None:
            problem = "missing; a row with a condition can be rejected: name the folder that keeps such rows"
            raise InvalidInput("option 'rejected'", problem)
        if options.condition is not None:
            raise InvalidInput("option 'condition'", "rows have conditions of their own: leave out one of them")


def _check_ids(parts: Sequence[StagedRows]) -> None:
    """Refuse a batch that has an id twice. Takes 16 bytes for each id, because a batch may have many millions."""
    packed = bytearray()
    for part in parts:
        for batch in part.batches():
            for text in batch.column("id").drop_null().to_pylist():
                packed += UUID(text).bytes
    ids = np.frombuffer(packed, dtype="S16")  # the padding makes no two different ids equal
    ids.sort()
    twice = np.flatnonzero(ids[1:] == ids[:-1])
    if len(twice):
        id = UUID(bytes=ids[twice[0]].ljust(16, b"\0"))
        raise InvalidInput("column 'id'", f"{id} occurs twice in this write; no row of it was stored")


def _rows(parts: Sequence[StagedRows]) -> Iterator[Row]:
    for part in parts:
        for batch in part.batches():
            yield from rows_of(batch)


def _chunks(rows: Iterator[Row]) -> Iterator[list[Event]]:
    """Chunks of events for one append each; the same rows always give the same chunks."""
    chunk: list[Event] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == CHUNK_EVENTS or size + len(row.event.data) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row.event)
        size += len(row.event.data)
    if chunk:
        yield chunk


def _identified(events: list[Event]) -> list[Event]:
    """Events that all have an id, or none. An append needs that; rows do not."""
    given = sum(event.id is not None for event in events)
    if given in (0, len(events)):
        return events
    return [event if event.id is not None else _with_id(event, uuid4()) for event in events]


def _with_id(event: Event, id: UUID) -> Event:
    return Event(event.type, data=event.data, tags=event.tags, id=id, metadata=event.metadata)
