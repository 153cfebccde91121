"""What a lake is on disk: Parquet files of consecutive positions, and a manifest that lists them.

    <folder>/manifest.json                       every file: positions, rows, size, SHA-256
    <folder>/manifests/<first>-<last>-*.json     the older part of a long list of files
    <folder>/events/<first>-<last>.parquet       zstd, sorted by position; in an object store <first>-<last>-*.parquet
    <folder>/appends/<first>-<last>.parquet      the conditions of the appends that end there, if they were recorded
    <folder>/retired/*.json                      files that a compaction has replaced, which are kept for a while

A file is complete, durable and under its final name before the manifest lists it, and the manifest is replaced in one
step. So the manifest always describes a consistent prefix of the log. A killed export or compaction leaves at worst
files that neither the manifest nor `retired` names; the next export removes them.
"""

from __future__ import annotations

import re
from hashlib import file_digest
from math import inf
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StoreCorrupt, StoreUnavailable
from ...storage import Storage, commit_manifest, stored_manifest
from .entries import MANIFEST, AppendsFile, LakeFile, LakeManifest
from .paths import Place, storage_of
from .retiring import retired_paths
from .segments import MANIFESTS, SEGMENT_NAME, expanded, sealed

FORMAT: Final = 2  # 1: the list of files has no segments
EVENTS: Final = "events"
APPENDS: Final = "appends"
# A file, or the draft of one.
_OURS: Final = re.compile(r"\d{20,}-\d{20,}(?:-[0-9a-f]{16})?\.parquet|\..*\.partial|\.[0-9a-f]{32}")


__all__ = ["MANIFEST", "AppendsFile", "LakeFile", "LakeManifest"]


def existing_manifest(lake: Place) -> LakeManifest:
    """The manifest of the lake; `StoreUnavailable` if there is no lake."""
    storage = storage_of(lake)
    found = read_lake_manifest(storage)
    if found is None:
        raise StoreUnavailable(f"{storage.name()}: there is no such lake; `fencepost lake export` creates one")
    return found


def read_lake_manifest(storage: Storage) -> LakeManifest | None:
    stored = stored_manifest(storage, LakeManifest, newest_format=FORMAT)
    if stored is None:
        return None
    manifest = expanded(storage, stored)
    after = 0
    for file in manifest.files:
        if file.after != after or not file.after < file.first <= file.last <= file.upto:
            raise StoreCorrupt(f"{storage.name(MANIFEST)}: {file.path} does not follow on position {after}")
        after = file.upto
    return manifest


def write_lake_manifest(storage: Storage, manifest: LakeManifest) -> LakeManifest:
    """Replace the manifest; returns it with the segments that now hold the older part of its list.

    In an object store, `ManifestChanged` is raised if another process has replaced the manifest since it was read.
    """
    stored = commit_manifest(storage, sealed(storage, manifest))
    return msgspec.structs.replace(stored, files=manifest.files)


def file_name(storage: Storage, kind: str, after: int, upto: int) -> str:
    """The path of a new file. Names sort as positions do."""
    return f"{kind}/{after + 1:020d}-{upto:020d}{storage.suffix()}.parquet"


def strays(storage: Storage, manifest: LakeManifest, *, before_s: float = inf) -> list[str]:
    """Files that exports write and that nothing names, those of a running export included.

    In an object store, only those that were written before `before_s`.
    """
    named = manifest.paths() | retired_paths(storage).keys()
    found = [
        f"{kind}/{name}"
        for kind in (EVENTS, APPENDS, MANIFESTS)
        for name in storage.listed(kind, before_s=before_s)
        if _OURS.fullmatch(name) or SEGMENT_NAME.fullmatch(name)
    ]
    return sorted(path for path in found if path not in named)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def problem_of(storage: Storage, file: LakeFile) -> str:
    """What is wrong with the file or its file of appends; empty if both are as the manifest says."""
    problem = _problem_of(storage, file, "position", file)
    if problem or file.appends is None:
        return problem
    problem = _problem_of(storage, file.appends, "last", file)
    return f"{file.appends.path}: {problem}" if problem else ""


def _problem_of(storage: Storage, file: LakeFile | AppendsFile, column: str, of: LakeFile) -> str:
    try:
        with storage.local(file.path) as path:
            return _content_problem(path, file) or _position_problem(path, column, of, file.rows)
    except FileNotFoundError:
        return "missing"


def _content_problem(path: Path, file: LakeFile | AppendsFile) -> str:
    if path.stat().st_size != file.bytes:
        return f"{path.stat().st_size} bytes, and the manifest says {file.bytes}"
    digest = sha256_of(path)
    return "" if digest == file.sha256 else f"its SHA-256 is {digest}, and the manifest says {file.sha256}"


def _position_problem(path: Path, column: str, file: LakeFile, expected: int) -> str:
    """Positions must grow, lie in the range of the file of events, and have the expected count."""
    rows, previous = 0, file.after
    try:
        with pq.ParquetFile(path) as parquet:
            for batch in parquet.iter_batches(columns=[column]):
                positions = np.concatenate([[previous], batch.column(column).to_numpy()])
                falls = np.flatnonzero(np.diff(positions) <= 0)
                if len(falls):
                    return f"position {positions[falls[0] + 1]} follows on {positions[falls[0]]}"
                previous = int(positions[-1])
                rows += batch.num_rows
    except (OSError, pa.ArrowException, KeyError) as error:
        return f"not a file of a lake: {error}"
    if rows != expected:
        return f"{rows} events up to {previous}, and the manifest says {expected} up to {file.last}"
    if previous > file.last or (column == "position" and previous != file.last):
        return f"{rows} rows up to {previous}, and the manifest says up to {file.last}"
    return ""
