"""Storages: a folder of files that a manifest lists, on a file system or in an object store.

    protocol    what every storage offers, and which storage a path or a URL names
    folder      a folder of the file system, whose writers hold a lock
    objects     a prefix of an object store, through obstore; its manifest is replaced under a condition
    manifest    manifests with a version, and how one replaces the other
    parquet     Parquet files, read with every check; it needs pyarrow

Lakes (`fencepost.engines.lake`) and views (`fencepost.spark.view`) are kept in storages. `objects` is imported only
when an object store is used, because obstore is optional.
"""

from __future__ import annotations

from .folder import Folder
from .manifest import VersionedManifest, commit_manifest, stored_manifest
from .protocol import LEFT_S, Contents, ManifestChanged, Storage, Version, busy, storage_at

__all__ = [
    "LEFT_S",
    "Contents",
    "Folder",
    "ManifestChanged",
    "Storage",
    "Version",
    "VersionedManifest",
    "busy",
    "commit_manifest",
    "storage_at",
    "stored_manifest",
]
