"""The metrics of several worker processes as one: each writes a snapshot of its own, and any of them answers for all.

Every worker has a file in a folder of the server, which it replaces once a second. Prometheus may ask any worker: that
one adds the snapshots of the others to its own values. So the values of the others are at most a second old.

A worker that takes the place of a killed one begins with what that one had published; what it counted after that is
missing. A counter that Prometheus has seen must not fall, because Prometheus would take that for a restart and count
everything again. So a worker publishes its values before it answers with them. tests/server/test_sharing.py and
tests/server/slow/test_workers.py hold this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from .metrics import Metrics, Snapshot, text_of


class Shared:
    """The snapshots of the workers, as the worker with this number sees them."""

    def __init__(self, folder: Path, number: int, measured: Metrics) -> None:
        self._folder = folder
        self._file = folder / f"worker-{number}.json"
        self._metrics = measured
        before = _read(self._file)
        if before is not None:
            measured.combine(before.counted())
        self.publish()

    def publish(self) -> Snapshot:
        """Write the values of this worker for the others, and return them."""
        snapshot = self._metrics.snapshot()
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(snapshot))
        draft.replace(self._file)
        return snapshot

    def text(self) -> bytes:
        """The metrics of all workers."""
        return text_of(self.publish(), self._others())

    def _others(self) -> Iterator[Snapshot]:
        for file in sorted(self._folder.glob("worker-*.json")):
            if file != self._file and (found := _read(file)) is not None:
                yield found if _is_alive(found.process) else found.counted()


def _read(file: Path) -> Snapshot | None:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=Snapshot)
    return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
