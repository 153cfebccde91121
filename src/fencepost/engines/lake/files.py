"""What a lake is on disk: Parquet files of consecutive positions, and a manifest that lists them.

    <folder>/manifest.json                       every file: positions, rows, size, SHA-256
    <folder>/manifests/<first>-<last>-*.json     the older part of a long list of files
    <folder>/events/<first>-<last>.parquet       zstd, sorted by position
    <folder>/appends/<first>-<last>.parquet      the conditions of the appends that end there, if they were recorded
    <folder>/retired/*.json                      files that a compaction has replaced, which are kept for a while

A file is complete, durable and under its final name before the manifest lists it, and the manifest is replaced in one
step. So the manifest always describes a consistent prefix of the log. A killed export or compaction leaves at worst
files that neither the manifest nor `retired` names; the next export removes them.
"""

from __future__ import annotations

import re
from hashlib import file_digest
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StoreCorrupt, StoreUnavailable
from ...manifests import read_manifest, write_manifest
from .entries import AppendsFile, LakeFile, LakeManifest
from .retiring import retired_paths
from .segments import MANIFESTS, SEGMENT_NAME, expanded, sealed

FORMAT: Final = 2  # 1: the list of files has no segments
MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
APPENDS: Final = "appends"
_OURS: Final = re.compile(r"\d{20,}-\d{20,}\.parquet|\..*\.partial|\.[0-9a-f]{32}")  # a file, or the draft of one


__all__ = ["AppendsFile", "LakeFile", "LakeManifest"]


def existing_manifest(folder: Path) -> LakeManifest:
    """The manifest of the lake in the folder; `StoreUnavailable` if there is no lake."""
    found = read_lake_manifest(folder)
    if found is None:
        raise StoreUnavailable(f"{folder}: there is no such lake; `fencepost lake export` creates one")
    return found


def read_lake_manifest(folder: Path) -> LakeManifest | None:
    path = folder / MANIFEST
    found = read_manifest(path, LakeManifest, name="lake", newest_format=FORMAT)
    manifest = None if found is None else expanded(folder, found)
    after = 0
    for file in manifest.files if manifest is not None else ():
        if file.after != after or not file.after < file.first <= file.last <= file.upto:
            raise StoreCorrupt(f"{path}: {file.path} does not follow on position {after}")
        after = file.upto
    return manifest


def write_lake_manifest(folder: Path, manifest: LakeManifest) -> LakeManifest:
    """Replace the manifest; returns it with the segments that now hold the older part of its list."""
    stored = sealed(folder, manifest)
    write_manifest(folder / MANIFEST, stored)
    return msgspec.structs.replace(stored, files=manifest.files)


def file_name(kind: str, after: int, upto: int) -> str:
    """Names sort as positions do."""
    return f"{kind}/{after + 1:020d}-{upto:020d}.parquet"


def strays(folder: Path, manifest: LakeManifest) -> list[str]:
    """Files that exports write and that nothing names, those of a running export included."""
    named = manifest.paths() | retired_paths(folder).keys()
    found = [
        f"{kind}/{path.name}"
        for kind in (EVENTS, APPENDS, MANIFESTS)
        for path in folder.glob(f"{kind}/*")
        if _OURS.fullmatch(path.name) or SEGMENT_NAME.fullmatch(path.name)
    ]
    return sorted(path for path in found if path not in named)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def problem_of(folder: Path, file: LakeFile) -> str:
    """What is wrong with the file or its file of appends; empty if both are as the manifest says."""
    problem = _content_problem(folder, file) or _position_problem(folder / file.path, "position", file, file.rows)
    if problem or file.appends is None:
        return problem
    appends = file.appends
    problem = _content_problem(folder, appends) or _position_problem(folder / appends.path, "last", file, appends.rows)
    return f"{appends.path}: {problem}" if problem else ""


def _content_problem(folder: Path, file: LakeFile | AppendsFile) -> str:
    path = folder / file.path
    if not path.exists():
        return "missing"
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
