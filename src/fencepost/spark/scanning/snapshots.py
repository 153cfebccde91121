"""A prefix of a log as a value: the position at which it ends, and the files of a lake that hold its beginning.

The manifest of the lake is read once, before the head of the store. The files that it lists never change and stay for
a while after a compaction has replaced them. So every use of the value reads the same events, whatever is appended,
exported or compacted meanwhile. tests/spark/test_frames.py checks that.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ...address import LAKE
from ...engines.lake.entries import LakeManifest
from ...engines.lake.paths import storage_of
from ...errors import InvalidInput
from ...storage import Storage
from ...store import EventStore
from ..basics import LakePart, Snapshot, Store, absolute_lake, bounds_of
from .scan import scan_of


def snapshot(store: Store, *, upto: int | None = None, lake: str | os.PathLike[str] | None = None) -> Snapshot:
    """The store up to its present head, or up to `upto` if that is below: a prefix for several reads to share.

    `lake` is the folder, or the URL, of a lake of the same log. Functions that take the snapshot then read the events
    that the lake holds from its files.
    """
    # Here, because workers import this module, and the reader of Parquet takes 0.1 s to import.
    from ...engines.lake.files import existing_manifest

    address, limit = bounds_of(store, upto)
    if isinstance(store, Snapshot) and lake is None:
        assert limit is not None
        return replace(store, upto=limit)
    if address.kind is LAKE:
        if lake is not None:
            raise InvalidInput("lake", f"{address} is a lake itself; name the store that it was exported from")
        folder = address.path
        own = existing_manifest(folder)
        end = own.upto if limit is None else min(limit, own.upto)
        return Snapshot(address, end, _part(folder, own, end))
    manifest: LakeManifest | None = None
    if lake is not None:
        folder = absolute_lake(lake, "lake")
        manifest = existing_manifest(folder)  # before the head, so that the lake is not ahead of the prefix
    with scan_of(address).open() as opened:
        head = opened.head()
        end = head if limit is None else min(limit, head)
        if manifest is None:
            return Snapshot(address, end)
        check_same_log(opened, storage_of(folder), manifest, "lake")
    return Snapshot(address, end, _part(folder, manifest, min(end, manifest.upto)))


def check_same_log(store: EventStore, lake: Storage, manifest: LakeManifest, name: str) -> None:
    """Refuse another log: the last position that store and lake both have must hold the same event.

    `name` is the argument that named the lake.
    """
    from ...engines.lake.reading import read_events

    common = min(manifest.upto, store.head())
    if common == 0:
        return
    stored = list(store.read(after=common - 1, upto=common))
    if list(read_events(lake, after=common - 1, upto=common)) != stored:
        raise InvalidInput(
            name, f"{lake.name()} holds another log: its event at position {common} differs from the store's"
        )


def _part(folder: str, manifest: LakeManifest, upto: int) -> LakePart:
    return LakePart(folder, tuple(file for file in manifest.files if file.overlaps(0, upto)), upto)
