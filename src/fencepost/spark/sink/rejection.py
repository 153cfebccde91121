"""The rows that a condition rejected: one Parquet file for each batch."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .rows import STAGED, Row

SCHEMA: Final = STAGED.append(pa.field("conflict_position", pa.decimal128(38, 0)))
BATCH_ROWS: Final = 4_096


class Rejections:
    """The file of one batch: complete and durable when the `with` block ends, or absent if the block raised.

    Its name follows from the write and the batch, so a replay replaces it by the same rows. A batch without rejected
    rows has no file.
    """

    def __init__(self, folder: str, write_id: str, batch: int) -> None:
        name = f"{sha256(write_id.encode()).hexdigest()[:32]}-{batch:010d}.parquet"
        self._target = Path(folder) / name
        self._draft = Path(folder) / f".{name}.{os.getpid()}"
        self._rows: list[dict[str, Any]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: Row, position: int) -> None:
        event, condition = row
        self._rows.append(
            {
                "type": event.type,
                "tags": sorted(event.tags),
                "data": event.data,
                "id": None if event.id is None else str(event.id),
                "metadata": list(event.metadata.items()),
                "condition": None if condition is None else condition.to_json(),
                "conflict_position": position,
            }
        )
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def __enter__(self) -> Rejections:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._rows and error is None:
            self._flush()
        if self._writer is None:
            return
        self._writer.close()
        if error is None:
            with self._draft.open("rb") as file:
                os.fsync(file.fileno())
            self._draft.replace(self._target)
        else:
            self._draft.unlink()

    def _flush(self) -> None:
        if self._writer is None:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._draft, SCHEMA, compression="zstd")
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=SCHEMA))
        self._rows = []
