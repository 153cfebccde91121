"""The rows that a condition rejected: one Parquet file for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...engine import durable_file
from .rows import STAGED, Row

SCHEMA: Final = STAGED.append(pa.field("conflict_position", pa.decimal128(38, 0)))
BATCH_ROWS: Final = 4_096


@contextmanager
def rejections(folder: str, write_id: str, batch: int) -> Iterator[Callable[[Row, int], None]]:
    """Yields a function that adds a row, with the position that it conflicts with, to the file of the batch.

    The file is complete and durable when the block ends, or absent if the block raised. Its name follows from the write
    and the batch, so a replay replaces it by the same rows. A batch without rejected rows has no file.
    """
    target = Path(folder) / f"{sha256(write_id.encode()).hexdigest()[:32]}-{batch:010d}.parquet"
    rows: list[dict[str, Any]] = []
    writer: pq.ParquetWriter | None = None

    def flush() -> None:
        nonlocal writer
        if writer is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = ends.enter_context(durable_file(target, replace=True))
            writer = ends.enter_context(pq.ParquetWriter(draft, SCHEMA, compression="zstd"))
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        rows.clear()

    def add(row: Row, position: int) -> None:
        event, condition = row
        rows.append(
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
        if len(rows) == BATCH_ROWS:
            flush()

    with ExitStack() as ends:
        yield add
        if rows:
            flush()
