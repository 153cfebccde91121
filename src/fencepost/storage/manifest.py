"""Manifests with a version: one replaces the other only if it is the one that the writer has read.

The version is part of the manifest in memory, so a writer cannot commit on top of a manifest that it has not seen. Each
manifest in an object store holds a random `commit`: no two of them are equal, so no two have the same ETag, and a
writer whose request was repeated after a lost answer recognises its own. A folder has a lock and needs neither.
tests/spark/test_object_lakes.py holds this.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..manifests import decoded, encoded
from .protocol import Storage


class VersionedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifests of lakes and views have in common."""

    commit: str | UnsetType = UNSET  # random, in an object store
    version: tuple[str | None, str | None] | UnsetType = UNSET  # of the object that was read; never written


Manifest = TypeVar("Manifest", bound=VersionedManifest)


def stored_manifest(storage: Storage, kind: type[Manifest], *, newest_format: int) -> Manifest | None:
    """The manifest with its version; None if the storage has no manifest."""
    found = storage.read_manifest()
    if found is None:
        return None
    text, version = found
    contents = storage.contents
    manifest = decoded(text, storage.name(contents.manifest), kind, name=contents.name, newest_format=newest_format)
    return msgspec.structs.replace(manifest, version=version or UNSET)


def commit_manifest(storage: Storage, manifest: Manifest) -> Manifest:
    """Replace the manifest whose version this one has; returns it with its new version.

    In an object store, `ManifestChanged` is raised if another process has replaced that manifest.
    """
    commit = UNSET if storage.is_locked else token_hex(16)
    stored = msgspec.structs.replace(manifest, commit=commit, version=UNSET)
    version = storage.replace_manifest(encoded(stored), manifest.version or None)
    return msgspec.structs.replace(stored, version=version or UNSET)
