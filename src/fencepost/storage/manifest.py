"""Manifests: small JSON files that say which other files belong to a lake or view, each with a version.

A manifest is read whole and replaced whole, so a reader sees the old content or the new one. Its field `format` says
how it is written; a newer format than the reader knows is refused before anything else is decoded.

A manifest replaces another only if that is the one that the writer has read. The version is part of the manifest in
memory, so a writer cannot commit on top of a manifest that it has not seen. Each manifest in an object store holds a
random `commit`: no two of them are equal, so no two have the same ETag, and a writer whose request was repeated after a
lost answer recognises its own. A folder has a lock and needs neither.
tests/unit/test_manifests.py and tests/spark/test_object_lakes.py hold this.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import FormatUnsupported, StoreCorrupt
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
    path = storage.name(storage.contents.manifest)
    try:
        written = int(bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))))
        if written > newest_format:
            raise FormatUnsupported(
                f"{path}: written in format {written}; this version of Fencepost reads formats up to {newest_format}: "
                "upgrade Fencepost"
            )
        manifest = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorrupt(f"{path}: not a {storage.contents.name}'s manifest: {error}") from None
    return msgspec.structs.replace(manifest, version=version or UNSET)


def commit_manifest(storage: Storage, manifest: Manifest) -> Manifest:
    """Replace the manifest whose version this one has; returns it with its new version.

    In an object store, `ManifestChanged` is raised if another process has replaced that manifest.
    """
    commit = UNSET if storage.is_locked else token_hex(16)
    stored = msgspec.structs.replace(manifest, commit=commit, version=UNSET)
    text = msgspec.json.format(msgspec.json.encode(stored), indent=1)
    version = storage.replace_manifest(text, manifest.version or None)
    return msgspec.structs.replace(stored, version=version or UNSET)
