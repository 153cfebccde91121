"""Files that a compaction has replaced: named in records, kept for readers that still use them, then removed.

A reader fixes its list of files once and opens them later. So a file that the manifest no longer lists must stay for
as long as such a reader may run. A record says which files were replaced and when. It is written before the manifest
is; if the compaction is killed in between, the record names files that the manifest still lists, which are not removed.
tests/spark/slow/test_compaction_kills.py kills compactions at every step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from ...durable import write_durably
from ...errors import StoreCorrupt

RETIRED: Final = "retired"
RETAIN_S: Final = 86_400.0  # a day: longer than queries run


def retire(folder: Path, paths: Iterable[str], *, now_s: float) -> None:
    """Record that these files are being replaced now."""
    (folder / RETIRED).mkdir(exist_ok=True)
    name = f"{int(now_s * 1000):015d}-{token_hex(4)}.json"
    write_durably(folder / RETIRED / name, msgspec.json.encode(sorted(paths)))


def retired_paths(folder: Path) -> dict[str, float]:
    """The files that records name, with the last time at which each was replaced."""
    found: dict[str, float] = {}
    for record in sorted(_records(folder)):  # by time
        for path in _named(record):
            found[path] = _time_of(record)
    return found


def sweep(folder: Path, listed: Collection[str], *, retain_s: float, now_s: float) -> int:
    """Remove the files that were replaced `retain_s` ago or earlier and are not `listed`; returns their number.

    A sweep that is killed leaves its records, so the next one continues.
    """
    end = now_s - retain_s
    over = [record for record in _records(folder) if _time_of(record) <= end]
    if not over:
        return 0
    times = retired_paths(folder)
    removed = 0
    for path in {path for record in over for path in _named(record)}:
        if path not in listed and times[path] <= end and (folder / path).exists():
            (folder / path).unlink()
            removed += 1
    for record in over:
        record.unlink()
    return removed


def _records(folder: Path) -> list[Path]:
    return list((folder / RETIRED).glob("[0-9]*-*.json"))


def _time_of(record: Path) -> float:
    return int(record.name.partition("-")[0]) / 1000


def _named(record: Path) -> list[str]:
    try:
        return msgspec.json.decode(record.read_bytes(), type=list[str])
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"{record}: not a list of files: {error}") from None
