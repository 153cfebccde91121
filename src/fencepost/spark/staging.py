"""Where rows rest between the tasks that make them and the driver that stores them.

    <staging>/<write>/tasks/<partition>-<random>.arrow     what tasks have written; some of it by tasks that failed
    <staging>/<write>/batch-<n>/<part>.arrow, complete     a batch that takes more than one append, whole and in order

Tasks run more than once: retried, speculated, replayed after a crash. None of them stores anything;
what counts is what the driver was told of. A batch that one transaction cannot hold is settled here
first. From then on it is these rows in this order, whatever a replay of the batch computes, so that
the driver can go on in the middle after a crash. A few rows need no file: they travel in the message.

`<write>` is made of the store and the write's id: the same id on two stores is two writes, and what one
of them has settled is never stored by the other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ..errors import StoreUnavailable
from .rows import STAGED, staged

INLINE_BYTES: Final = 262_144  # from one task; the driver holds those of all tasks of a batch at once
ABANDONED_S: Final = 86_400.0
COMPLETE: Final = "complete"


@dataclass(frozen=True)
class Part(WriterCommitMessage):
    """What one task has staged: in a file, or here."""

    rows: int
    data_bytes: int
    conditional: bool
    path: str | None = None
    content: bytes | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.path is None:
            assert self.content is not None
            yield from pa.ipc.open_stream(self.content)
            return
        try:
            with pa.OSFile(self.path) as file:
                yield from pa.ipc.open_stream(file)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise StoreUnavailable(
                f"{self.path}: {error}; a task staged it there and the driver cannot read it: set the option 'staging' "
                "to a folder that the driver and all workers share"
            ) from None


@dataclass(frozen=True)
class Staging:
    """The folder of one write, or of one stream."""

    root: str
    store: str = field(repr=False)  # the address may hold a password
    write_id: str

    @property
    def folder(self) -> Path:
        return Path(self.root) / sha256(f"{known_as(self.store)}\0{self.write_id}".encode()).hexdigest()[:32]

    @property
    def _tasks(self) -> Path:
        return self.folder / "tasks"

    def stage(self, batches: Iterator[pa.RecordBatch], partition: int) -> Part:
        """Check the rows and keep them; in a task."""
        held: list[pa.RecordBatch] = []
        rows = size = data_bytes = 0
        conditional = False
        spill: Spill | None = None
        for batch in batches:
            checked = staged(batch, rows)
            rows += checked.num_rows
            size += checked.nbytes
            data_bytes += checked.column("data").nbytes
            conditional = conditional or checked.column("condition").null_count < checked.num_rows
            if spill is None and size > INLINE_BYTES:
                spill = Spill(self._tasks, partition, held)
                held = []
            if spill is None:
                held.append(checked)
            else:
                spill.write(checked)
        if spill is not None:
            return Part(rows, data_bytes, conditional, path=spill.close())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, STAGED) as writer:
            for batch in held:
                writer.write_batch(batch)
        return Part(rows, data_bytes, conditional, content=sink.getvalue().to_pybytes())

    def settle(self, parts: Sequence[Part], batch: int) -> list[Part]:
        """Make the batch these parts for good, unless it was settled before: then it is what it was."""
        folder = self.folder / f"batch-{batch}"
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for index, part in enumerate(parts):
                target = folder / f"{index:06d}.arrow"
                if part.path is None:
                    assert part.content is not None
                    _write(target, part.content)
                else:
                    next(part.batches(), None)  # says what to do if the file cannot be seen from here
                    os.replace(part.path, target)
            _write(folder / COMPLETE, b"")
            _sync(folder)
        return [Part(0, 0, False, path=str(path)) for path in sorted(folder.glob("*.arrow"))]

    def settled(self, batch: int) -> bool:
        return (self.folder / f"batch-{batch}" / COMPLETE).exists()

    def discard(self) -> None:
        """Forget what tasks have staged; settled batches stay."""
        shutil.rmtree(self._tasks, ignore_errors=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def finish(self, batch: int) -> None:
        """Forget everything about a batch that is stored."""
        shutil.rmtree(self.folder / f"batch-{batch}", ignore_errors=True)
        self.discard()
        _sweep(Path(self.root))


class Spill:
    """A file under a name that no other attempt uses, on disk when it is closed."""

    def __init__(self, folder: Path, partition: int, held: Sequence[pa.RecordBatch]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{partition:06d}-{uuid4().hex}.arrow"
        self._file = self._path.open("wb")
        self._writer = pa.ipc.new_stream(self._file, STAGED)
        for batch in held:
            self._writer.write_batch(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> str:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return str(self._path)


def known_as(address: str) -> str:
    """What stays of a store's address when its password changes, or its path is written in another way.

    >>> known_as("postgresql://ada:secret@db/wallet"), known_as("sqlite:/data/../wallet.db")
    ('postgresql://ada@db/wallet', '/wallet.db')
    """
    if "://" not in address:
        return address if address.startswith("fdb:") else os.path.realpath(address.removeprefix("sqlite:"))
    parts = urlsplit(address)
    login, at, host = parts.netloc.rpartition("@")
    told = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name.lower()]
    return parts._replace(netloc=login.partition(":")[0] + at + host, query=urlencode(sorted(told))).geturl()


def default_root() -> str:
    return str(Path(tempfile.gettempdir()) / f"fencepost-staging-{os.getuid()}")


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(root: Path) -> None:
    """Delete what writes that were killed have left. A settled batch is kept: its rows may be half stored."""
    if not root.exists():
        return
    for folder in root.iterdir():
        try:
            old = time.time() - (folder / "tasks").stat().st_mtime > ABANDONED_S
        except OSError:
            continue
        if old:
            shutil.rmtree(folder / "tasks", ignore_errors=True)
            if not any(folder.iterdir()):
                folder.rmdir()
