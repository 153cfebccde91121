"""A lake: the log as Parquet files, opened as a store that can be read but not written.

    columns     the columns of the files, and conversions to Python values
    entries     the entries of the manifest
    segments    the older part of a long list of files
    retiring    files that a compaction has replaced, until they are removed
    files       the files of a lake, the manifest that lists them, and how one is checked against it
    paths       folders, also as `file:` URLs, and URLs of object stores; other file systems are refused; the storage
    reading     record batches and events from the files of a range of positions
    engine      the read-only engine behind `fencepost.open("lake:FOLDER")`

Reading needs pyarrow and no Spark. `fencepost.spark.lake` writes lakes. Nothing is imported here, because Spark's
workers need `columns` alone and pyarrow.parquet takes 0.1 s to import.
"""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}; a lake is read with pyarrow: pip install 'fencepost[spark]'") from error
