"""Files that a compaction has replaced: named in records, kept for readers that still use them, then removed.

A reader fixes its list of files once and opens them later. So a file that the manifest no longer lists must stay for
as long as such a reader may run. A record says which files were replaced and when. It is written before the manifest
is; if the compaction is killed in between, the record names files that the manifest still lists, which are not removed.
tests/spark/slow/test_compaction_kills.py kills compactions at every step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Final

import msgspec

from ...errors import StoreCorrupt
from ...storage import Storage

RETIRED: Final = "retired"
RETAIN_S: Final = 86_400.0  # a day: longer than queries run


_RECORD: Final = re.compile(r"[0-9].*-.*\.json")


@dataclass(frozen=True)
class Replaced:
    """Replaced files whose time is over, and the records that name them."""

    paths: frozenset[str] = frozenset()
    records: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.records)


def retire(lake: Storage, paths: Iterable[str], *, now_s: float) -> None:
    """Record that these files are being replaced now."""
    name = f"{int(now_s * 1000):015d}-{token_hex(4)}.json"
    with lake.new_file(f"{RETIRED}/{name}") as draft:
        draft.write_bytes(msgspec.json.encode(sorted(paths)))


def retired_paths(lake: Storage) -> dict[str, float]:
    """The files that records name, with the last time at which each was replaced."""
    found: dict[str, float] = {}
    for record in sorted(_records(lake)):  # by time
        for path in _named(lake, record):
            found[path] = _time_of(record)
    return found


def replaced(lake: Storage, listed: Collection[str], *, retain_s: float, now_s: float) -> Replaced:
    """The files that were replaced `retain_s` ago or earlier and are not `listed`."""
    end = now_s - retain_s
    over = [record for record in _records(lake) if _time_of(record) <= end]
    if not over:
        return Replaced()
    times = retired_paths(lake)
    named = {path for record in over for path in _named(lake, record)}
    paths = frozenset(path for path in named if path not in listed and times[path] <= end)
    return Replaced(paths, tuple(over))


def remove(lake: Storage, over: Replaced) -> None:
    """Remove the files, then their records. If this is killed, the records stay, and the next call continues."""
    for path in (*over.paths, *over.records):
        lake.delete(path)


def _records(storage: Storage) -> list[str]:
    return [f"{RETIRED}/{name}" for name in storage.listed(RETIRED) if _RECORD.fullmatch(name)]


def _time_of(record: str) -> float:
    return int(record.removeprefix(f"{RETIRED}/").partition("-")[0]) / 1000


@lru_cache(maxsize=4_096)
def _named(storage: Storage, record: str) -> tuple[str, ...]:
    """The files that a record names; kept in memory, because it never changes."""
    try:
        return msgspec.json.decode(storage.read(record), type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"{storage.name(record)}: not a list of files: {error}") from None
