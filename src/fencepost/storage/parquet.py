"""Reading a Parquet file of a storage with every check that its content allows.

Every page is checked against its checksum, the rows are counted, and text is validated. Damage raises `StoreCorrupt`,
which names the file and says what to do; no reader sees another answer. tests/spark/test_lake.py damages files of
lakes, tests/spark/test_object_views.py those of views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import StoreCorrupt
from .protocol import Storage

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16_777_216  # of a batch, if its rows are of average size for their row group


def checked_batches(
    storage: Storage,
    path: str,
    columns: Sequence[str] | None,
    may_hold: Callable[[pq.RowGroupMetaData], bool] = lambda group: True,
) -> Iterator[pa.RecordBatch]:
    """The batches of a file's chosen row groups; raises `StoreCorrupt` for a wrong checksum or missing rows.

    A page's header has no checksum, and the reader skips a page that claims to be of another kind: hence the count
    of rows. Text is validated because files of earlier versions have no checksums.
    """
    try:
        # In an object store each read is a request, so the pages of a row group are read together.
        together = not storage.is_locked
        with (
            storage.source(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=together) as parquet,
        ):
            missing = 0
            for number in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(number)
                if not may_hold(group):
                    continue
                missing += group.num_rows
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
                for batch in parquet.iter_batches(rows, row_groups=[number], columns=columns):
                    batch.validate(full=True)
                    missing -= batch.num_rows
                    yield batch
            if missing:
                raise pa.ArrowInvalid(f"{missing} rows fewer than its own footer says")
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreCorrupt(f"{storage.name(path)}: {reason}; {storage.contents.repair}") from None
