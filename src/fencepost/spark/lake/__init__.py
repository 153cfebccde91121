"""The log as a Delta table with checksums: export, verify, restore, and keep current.

    exports     `export`: the workers write the files of new positions, the driver commits them to the table;
                `follow`: an export whenever the log grows, as a streaming query
    compaction  `compact`: small files become one; exports do it by themselves
    verification  `verify`: every file against the table's log
    restoration  `restore`: from a lake back into a store
    writer      a file of a lake, in a worker

`fencepost.spark.lake_engine` has the format of the files and reads them.
"""

from __future__ import annotations

from .compaction import Compacted, compact
from .exports import Exported, export, follow, table_version
from .restoration import restore
from .verification import verify

__all__ = ["Compacted", "Exported", "compact", "export", "follow", "restore", "table_version", "verify"]
