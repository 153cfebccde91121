"""The older part of a long list of files, in files of its own.

The manifest is written again for every export. A list of all files would make that slower with every export. So once
enough files have gathered, the entries of the oldest `SEGMENT_FILES` move to a segment, a file that is named by its
content (in an object store at random) and never changes; the manifest lists segments and the newest files. Writing the
manifest then costs the same however long the log is. tests/unit/test_lake_segments.py holds this.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from ...errors import StoreCorrupt
from ...storage import Storage
from .entries import LakeFile, LakeManifest, Segment

MANIFESTS: Final = "manifests"
SEGMENT_FILES: Final = 256
OPEN_FILES: Final = 64  # the newest ones stay in the manifest, because a compaction may still merge them
SEGMENT_NAME: Final = re.compile(r"\d{20,}-\d{20,}-[0-9a-f]{16}\.json")


def expanded(storage: Storage, stored: LakeManifest) -> LakeManifest:
    """The manifest with the files of its segments."""
    older = tuple(file for segment in stored.segments for file in _entries(storage, segment.path, segment.sha256))
    return msgspec.structs.replace(stored, files=(*older, *stored.files)) if older else stored


def sealed(storage: Storage, manifest: LakeManifest) -> LakeManifest:
    """The manifest as it is written: with segments, which exist when this returns, and the files after them.

    A segment whose files are no longer those of the manifest is left out.
    """
    segments: list[Segment] = []
    done = 0
    for segment in manifest.segments:
        end = done + segment.files
        if manifest.files[done:end] != _entries(storage, segment.path, segment.sha256):
            break
        segments.append(segment)
        done = end
    while len(manifest.files) - done >= SEGMENT_FILES + OPEN_FILES:
        segments.append(_written(storage, manifest.files[done : done + SEGMENT_FILES]))
        done += SEGMENT_FILES
    format = 2 if segments else 1  # without segments, earlier versions can read it
    return LakeManifest(format=format, segments=tuple(segments), files=manifest.files[done:], version=manifest.version)


def _written(storage: Storage, files: tuple[LakeFile, ...]) -> Segment:
    content = msgspec.json.encode(files)
    digest = sha256(content).hexdigest()
    path = f"{MANIFESTS}/{files[0].after + 1:020d}-{files[-1].upto:020d}{storage.suffix() or f'-{digest[:16]}'}.json"
    with storage.new_file(path) as draft:
        draft.write_bytes(content)
    return Segment(path=path, files=len(files), upto=files[-1].upto, sha256=digest)


@lru_cache(maxsize=1_024)
def _entries(storage: Storage, path: str, digest: str) -> tuple[LakeFile, ...]:
    """The entries of a segment; kept in memory, because they never change."""
    try:
        content = storage.read(path)
    except OSError as error:
        raise StoreCorrupt(f"{storage.name(path)}: {error.strerror}; the lake's manifest lists it") from None
    if sha256(content).hexdigest() != digest:
        raise StoreCorrupt(f"{storage.name(path)}: its SHA-256 is not the one that the manifest lists")
    return msgspec.json.decode(content, type=tuple[LakeFile, ...])
