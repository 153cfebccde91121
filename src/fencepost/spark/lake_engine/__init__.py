"""A lake: the log as a Delta table, opened as a store that can be read but not written.

    files       the files of a lake's table, which their names describe, and how one is checked
    reader      record batches and events from the files of a range of positions
    columns     the columns of the table
    engine      the read-only engine behind `fencepost.open("lake:FOLDER")`

Reading needs pyarrow and deltalake, and no Spark. `fencepost.spark.lake` writes lakes. Nothing is imported here,
because Spark's workers need `reader` alone.
"""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}; a lake is read with pyarrow: pip install 'fencepost[lake]'") from error
