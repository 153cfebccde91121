"""What a lake is on disk: Parquet files of consecutive positions, and a manifest that proves them.

    <folder>/manifest.json                       every file: positions, rows, size, SHA-256
    <folder>/events/<first>-<last>.parquet       zstd, sorted by position
    <folder>/appends/<first>-<last>.parquet      what the appends that end there were conditional on, if it was recorded

A file is there whole, under its final name, before the manifest names it, and the manifest is
replaced in one step. So whoever reads the manifest sees a consistent prefix of the log. An export
that was killed leaves at worst files that the manifest does not name, which the next one removes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import FormatUnsupported, StoreCorrupt, StoreUnavailable
from .locking import alone

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
APPENDS: Final = "appends"
LOCK: Final = "export.lock"

_OURS: Final = re.compile(r"\d{20,}-\d{20,}\.parquet|\.[0-9a-f]{32}")  # a file, or the draft of one

# What the source gives as well, so that the files can be read by any tool under the same names.
SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("recorded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.string()),
        pa.field("metadata", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)


class AppendsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded appends whose last event is in a file of events."""

    path: str
    rows: int
    bytes: int
    sha256: str


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: everything with after < position <= upto is in it and nothing else."""

    path: str  # relative to the folder
    after: int
    upto: int
    first: int
    last: int
    rows: int
    bytes: int
    sha256: str
    appends: AppendsFile | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The files, in order and without a gap between them."""

    format: int = FORMAT
    files: tuple[LakeFile, ...] = ()

    @property
    def upto(self) -> int:
        """Everything up to here is in the lake."""
        return self.files[-1].upto if self.files else 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise StoreUnavailable(f"{folder}: there is no such lake; `fencepost lake export` makes one") from None
    try:
        version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))
        if int(bytes(version)) > FORMAT:
            raise FormatUnsupported(
                f"{path}: written in format {int(bytes(version))}; this version of Fencepost reads up to {FORMAT}: "
                "upgrade Fencepost"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorrupt(f"{path}: not a lake's manifest: {error}") from None
    after = 0
    for file in manifest.files:
        if file.after != after or not file.after < file.first <= file.last <= file.upto:
            raise StoreCorrupt(f"{path}: {file.path} does not follow on position {after}")
        after = file.upto
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_in_one_step(folder / MANIFEST, manifest)


def write_in_one_step(path: Path, content: msgspec.Struct) -> None:
    """As JSON, whole or not at all, and on disk before it counts."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content), indent=1))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_name(kind: str, after: int, upto: int) -> str:
    """Names sort as positions do."""
    return f"{kind}/{after + 1:020d}-{upto:020d}.parquet"


@contextmanager
def exporting(folder: Path) -> Iterator[None]:
    """One export at a time: two would each take the other's files out of the manifest."""
    (folder / EVENTS).mkdir(parents=True, exist_ok=True)
    with alone(folder / LOCK, f"{folder}: another process is exporting into this lake; try again later"):
        yield


def strays(folder: Path, manifest: Manifest) -> list[str]:
    """Files such as an export writes, and the manifest does not name; those of a running export are among them."""
    named = {file.path for file in manifest.files} | {file.appends.path for file in manifest.files if file.appends}
    found = [
        f"{kind}/{path.name}"
        for kind in (EVENTS, APPENDS)
        for path in folder.glob(f"{kind}/*")
        if _OURS.fullmatch(path.name)
    ]
    return sorted(path for path in found if path not in named)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def problem_of(folder: Path, file: LakeFile) -> str:
    """What is wrong with the file, or the one of its appends; nothing if both are as the manifest says."""
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
    """Positions grow, lie in the range of the file of events, and are as many as they should be."""
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
