"""The folder in which rows wait between the tasks that stage them and the driver that stores them.

    <staging>/<write>/tasks/<partition>-<random>.arrow     files of tasks, failed ones included
    <staging>/<write>/batch-<n>/<part>.arrow, complete     a batch that takes more than one append, complete, in order

Spark runs tasks more than once: it retries, speculates, and replays after a crash. Tasks store nothing; only what they
report to the driver counts. A batch that one transaction cannot hold is settled here first. From then on the batch is
these rows in this order, whatever a replay computes, so the driver can continue in the middle after a crash. A few
rows need no file: they are sent in the task's message.

`<write>` is a hash of the store and the write's id. The same id on two stores makes two writes, and neither stores
what the other has settled.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ...engine import Address, login_of, write_durably
from ...errors import StoreUnavailable
from .rows import STAGED, staged

INLINE_BYTES: Final = 262_144  # from one task; the driver holds the messages of all tasks of a batch at once
ABANDONED_S: Final = 86_400.0
COMPLETE: Final = "complete"
TASKS: Final = "tasks"


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The rows that one task has staged: in a file, or in this message."""

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
    store: Address
    write_id: str

    @property
    def folder(self) -> Path:
        return Path(self.root) / sha256(f"{known_as(self.store)}\0{self.write_id}".encode()).hexdigest()[:32]

    def _batch(self, batch: int) -> Path:
        return self.folder / f"batch-{batch}"

    def stage(self, batches: Iterator[pa.RecordBatch], partition: int) -> StagedRows:
        """Check the rows and keep them; in a task."""
        held: list[pa.RecordBatch] = []
        rows = size = data_bytes = 0
        conditional = False
        path: str | None = None
        writer: pa.RecordBatchStreamWriter | None = None
        with ExitStack() as ends:
            for batch in batches:
                checked = staged(batch, rows)
                rows += checked.num_rows
                size += checked.nbytes
                data_bytes += checked.column("data").nbytes
                conditional = conditional or checked.column("condition").null_count < checked.num_rows
                held.append(checked)
                if writer is None and size > INLINE_BYTES:
                    path, writer = ends.enter_context(_spill(self.folder / TASKS, partition))
                if writer is not None:
                    for each in held:
                        writer.write_batch(each)
                    held = []
        if path is not None:
            return StagedRows(rows, data_bytes, conditional, path=path)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, STAGED) as writer:
            for batch in held:
                writer.write_batch(batch)
        return StagedRows(rows, data_bytes, conditional, content=sink.getvalue().to_pybytes())

    def settle(self, parts: Sequence[StagedRows], batch: int) -> list[StagedRows]:
        """Fix the rows of the batch. A batch that was settled before keeps its rows."""
        folder = self._batch(batch)
        if not self.settled(batch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for index, part in enumerate(parts):
                target = folder / f"{index:06d}.arrow"
                if part.path is None:
                    assert part.content is not None
                    write_durably(target, part.content)
                else:
                    next(part.batches(), None)  # raises an error that says what to do if the driver cannot see the file
                    os.replace(part.path, target)
            write_durably(folder / COMPLETE, b"")
        return [StagedRows(0, 0, False, path=str(path)) for path in sorted(folder.glob("*.arrow"))]

    def settled(self, batch: int) -> bool:
        return (self._batch(batch) / COMPLETE).exists()

    def discard(self) -> None:
        """Delete what tasks have staged; settled batches stay."""
        _delete_tasks(self.folder)

    def finish(self, batch: int) -> None:
        """Delete all files of a batch that is stored."""
        shutil.rmtree(self._batch(batch), ignore_errors=True)
        self.discard()
        _sweep(Path(self.root))


@contextmanager
def _spill(folder: Path, partition: int) -> Iterator[tuple[str, pa.RecordBatchStreamWriter]]:
    """A file under a name that no other attempt of the task uses, and its writer; durable when the block ends."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{partition:06d}-{uuid4().hex}.arrow"
    with path.open("wb") as file:
        with pa.ipc.new_stream(file, STAGED) as writer:
            yield str(path), writer
        file.flush()
        os.fsync(file.fileno())


def known_as(address: Address) -> str:
    """A name of the store that stays when its password changes, or its path is written in another way.

    >>> known_as(Address.parse("postgresql://ada:secret@db/wallet"))
    'postgresql://ada@db/wallet'
    >>> known_as(Address.parse("sqlite:/data/../wallet.db"))
    '/wallet.db'
    """
    if not address.kind.is_url:
        return os.path.realpath(address.path) if address.kind.is_path else address.text
    scheme, _, rest = address.text.partition("://")
    login, place = login_of(rest)
    user = "" if login is None else login.partition(":")[0] + "@"
    url, _, query = place.partition("?")
    told = sorted((name, value) for name, value in parse_qsl(query) if "password" not in name.lower())
    return f"{scheme}://{user}{url}" + (f"?{urlencode(told)}" if told else "")


def default_root() -> str:
    return str(Path(tempfile.gettempdir()) / f"fencepost-staging-{os.getuid()}")


def _sweep(root: Path) -> None:
    """Delete files that killed writes have left. A settled batch is kept: half of its rows may be stored."""
    for tasks in root.glob(f"*/{TASKS}"):
        with suppress(OSError):
            if time.time() - tasks.stat().st_mtime > ABANDONED_S:
                _delete_tasks(tasks.parent)


def _delete_tasks(folder: Path) -> None:
    """Delete what the tasks of a write have staged, and the write's folder if nothing else is in it."""
    shutil.rmtree(folder / TASKS, ignore_errors=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
