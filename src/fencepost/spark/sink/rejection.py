"""The rows that a condition rejected: one Parquet file for each batch."""

from __future__ import annotations

from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...durable import durable_file
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
        self._rows: list[dict[str, Any]] = []
        self._writer: pq.ParquetWriter | None = None
        self._ends = ExitStack()

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rows and error is None:
            self._flush()
        self._ends.__exit__(kind, error, trace)

    def _flush(self) -> None:
        if self._writer is None:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            draft = self._ends.enter_context(durable_file(self._target, replace=True))
            self._writer = self._ends.enter_context(pq.ParquetWriter(draft, SCHEMA, compression="zstd"))
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=SCHEMA))
        self._rows = []
