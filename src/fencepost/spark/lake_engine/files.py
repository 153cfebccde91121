"""What a lake is: a Delta table of events, in files of consecutive positions whose names describe them.

    <folder>/_delta_log/                                        the table's versions, by Delta
    <folder>/events/<first>-<last>-<SHA-256>-<random>.parquet   the events of a range, zstd, sorted by position

The name of a file has its range of positions and the SHA-256 of its content, so the table's log proves the content of
every file that it lists. The files of a version have no gap between their ranges, so every version is a prefix of the
log. tests/spark/test_lake.py damages files and the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from secrets import token_hex
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StoreCorrupt, StoreUnavailable
from ..delta import DataFile, FileTable, State

EVENTS: Final = "events"
_NAME: Final = re.compile(rf"{EVENTS}/(\d{{20,}})-(\d{{20,}})-([0-9a-f]{{64}})-[0-9a-f]{{8}}\.parquet")
_OURS: Final = re.compile(rf"{_NAME.pattern}|{EVENTS}/\.draft-\w+/draft\.parquet")


class LakeFile(DataFile, frozen=True, kw_only=True):
    """One file of events: all events with after < position <= up_to, and no others."""

    after: int
    up_to: int
    sha256: str

    @classmethod
    def of(cls, file: DataFile) -> LakeFile | None:
        """The file with what its name says; None if no export has written it."""
        named = _NAME.fullmatch(file.path)
        if named is None:
            return None
        after, up_to = int(named[1]) - 1, int(named[2])
        return cls(
            path=file.path,
            rows=file.rows,
            bytes=file.bytes,
            after=after,
            up_to=up_to,
            sha256=named[3],
        )

    def overlaps(self, after: int, up_to: int) -> bool:
        """Whether the file has an event with after < position <= up_to, if positions have no gaps."""
        return self.after < up_to and self.up_to > after


@dataclass(frozen=True)
class Lake:
    """A lake as a process has read it: its files, in order and without a gap between them."""

    table: FileTable
    state: State
    files: tuple[LakeFile, ...]

    @property
    def up_to(self) -> int:
        """The lake holds every event up to this position."""
        return self.files[-1].up_to if self.files else 0

    @property
    def digest(self) -> str:
        """The digest of the event at that position; empty if the position has no event."""
        newest = self.state.newest
        return newest.digest if newest.position == self.up_to else ""


def lake_of(table: FileTable, state: State) -> Lake:
    """The lake in that state of its table; raises `StoreCorrupt` if its files are not those of a lake."""
    files = []
    for file in state.files.values():
        found = LakeFile.of(file)
        if found is None:
            raise StoreCorrupt(
                f"{table.name(file.path)}: no export has written this file; another program has changed the lake's "
                "table: restore an earlier version of it, or export the log to a new folder"
            )
        files.append(found)
    files.sort(key=lambda file: file.after)
    after = 0
    for each in files:
        if each.after != after or each.up_to <= each.after:
            raise StoreCorrupt(
                f"{table.location}: {each.path} does not follow on position {after}; another program has changed the "
                "lake's table: restore an earlier version of it, or export the log to a new folder"
            )
        after = each.up_to
    return Lake(table, state, tuple(files))


def lake_at(location: str | Path, *, argument: str = "lake") -> Lake:
    """The lake at a path or URL; `StoreUnavailable` if there is no lake."""
    table = FileTable(str(location), argument)
    state = table.state()
    if state is None:
        raise StoreUnavailable(f"{table.location}: there is no such lake; `fencepost lake export` creates one")
    return lake_of(table, state)


def file_path(after: int, up_to: int, sha256: str) -> str:
    """The path of a new file. Names sort as positions do, and no two are equal."""
    return f"{EVENTS}/{after + 1:020d}-{up_to:020d}-{sha256}-{token_hex(4)}.parquet"


def is_ours(path: str) -> bool:
    """Whether exports write files of this name."""
    return _OURS.fullmatch(path) is not None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def problem_of(table: FileTable, file: LakeFile) -> str:
    """What is wrong with the file; empty if it is as the table's log says."""
    try:
        with table.source(file.path) as source:
            size = source.seek(0, 2)
            if size != file.bytes:
                return f"{size} bytes, and the table's log says {file.bytes}"
            source.seek(0)
            digest = file_digest(source, "sha256").hexdigest()
            if digest != file.sha256:
                return f"its SHA-256 is {digest}, and its name says {file.sha256}"
            source.seek(0)
            return _position_problem(source, file)
    except FileNotFoundError:
        return "missing"


def _position_problem(source: object, file: LakeFile) -> str:
    """Positions must grow, lie in the range of the file, and have the expected count."""
    rows, previous = 0, file.after
    try:
        with pq.ParquetFile(source) as parquet:
            for batch in parquet.iter_batches(columns=["position"]):
                positions = np.concatenate([[previous], batch.column("position").to_numpy()])
                falls = np.flatnonzero(np.diff(positions) <= 0)
                if len(falls):
                    return f"position {positions[falls[0] + 1]} follows on {positions[falls[0]]}"
                previous = int(positions[-1])
                rows += batch.num_rows
    except (OSError, pa.ArrowException, KeyError) as error:
        return f"not a file of a lake: {error}"
    if rows != file.rows or previous > file.up_to:
        return f"{rows} events up to {previous}, and the table's log says {file.rows} up to {file.up_to}"
    return ""
