"""The log as Parquet files with checksums: export, verify, restore, and keep current.

    exporting   `export`: the workers write the files of new positions, the driver lists them in the manifest;
                `follow`: an export whenever the log grows, as a streaming query
    compacting  `compact`: small files become one; exports do it by themselves
    verifying   `verify`: every file against the manifest
    restoring   `restore`: from a lake back into a store
    tables      Delta and Iceberg tables over the same files

`fencepost.engines.lake` has the format of the files and reads them.
"""

from __future__ import annotations

from .compacting import Compacted, compact
from .exporting import Exported, export, follow
from .restoring import restore
from .tables import table_version
from .verifying import verify

__all__ = ["Compacted", "Exported", "compact", "export", "follow", "restore", "table_version", "verify"]
