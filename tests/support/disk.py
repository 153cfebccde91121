"""A disk that loses power, fails to sync and fills up, beneath the real SQLite.

`Disk` is a SQLite VFS over the real files. It passes everything through and keeps a log of the
steps that change a file. The log tells what a power cut after any step may leave behind: what
was synced, and of what was not, any part, the last write torn. So a workload runs once, and
`power_cuts` goes through every moment of it.

A fault is a function that sees each step before it is taken and may raise; `failing` makes
one. A failed sync loses what it should have synced: later syncs report success and do not bring
it back, as on Linux, and whether the running process still sees it is up to the page cache: a
test can choose either. A failed write has written half of its bytes.

Names are journaled in order, as file systems do: a sync makes the file's name durable and with
it every creation and deletion before it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import apsw

from fencepost.engines.sqlite.page_checksums import VFS, load

load()

Kind: TypeAlias = Literal["create", "delete", "read", "write", "truncate", "sync", "lost", "mark"]

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Step:
    """One change to a file, or a mark that the workload has set. Reads can fail, and are not logged."""

    kind: Kind
    file: str
    offset: int = 0  # of a write; the new size, of a truncation
    data: bytes = b""
    note: Any = None

    def __str__(self) -> str:
        size = f" {len(self.data)} bytes at {self.offset}" if self.kind == "write" else ""
        return f"{self.kind} {self.file}{size}"


Fault: TypeAlias = Callable[[Step], None]


def no_fault(step: Step) -> None: ...


class Disk(apsw.VFS):
    """Open a store on it with `vfs=disk.name`. Only files of one folder may be on one disk.

    With `forgetful`, what a failed sync has lost is gone from the page cache too. A `platter` is
    what an earlier disk has left behind.
    """

    def __init__(self, *, forgetful: bool = False, platter: Platter | None = None) -> None:
        self.name: Final = f"disk-{next(_numbers)}"
        self.log: list[Step] = []
        self.fault: Fault = no_fault
        self.forgetful = forgetful
        self.platter = platter or Platter()
        super().__init__(self.name, VFS)

    def mark(self, note: Any) -> None:
        """Remember that the workload has come this far."""
        self.log.append(Step("mark", "", note=note))

    def marks(self) -> list[Any]:
        return [step.note for step in self.log if step.kind == "mark"]

    def take(self, step: Step) -> None:
        """What happens on every disk: the step is logged, and the platter changes."""
        self.log.append(step)
        self.platter.take(step)

    # What SQLite calls.

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        step = Step("delete", os.path.basename(filename))
        self.fault(step)
        super().xDelete(filename, syncdir)
        self.take(step)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._file = os.path.basename(path) if path else None  # a temporary file has no name, and no future
        new = path is not None and not os.path.exists(path)
        super().__init__(VFS, name, flags)
        if self._file is not None and path is not None:
            if new:
                disk.take(Step("create", self._file))
            elif self._file not in disk.platter.files:
                disk.platter.add(self._file, Path(path).read_bytes())

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.fault(Step("read", self._file or "", offset))
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        step = Step("write", self._file or "", offset, bytes(data))
        try:
            self._disk.fault(step)
        except apsw.Error:
            half = bytes(data)[: len(data) // 2]
            super().xWrite(half, offset)
            self._take(Step("write", step.file, offset, half))
            raise
        super().xWrite(data, offset)
        self._take(step)

    def xTruncate(self, newsize: int) -> None:
        step = Step("truncate", self._file or "", newsize)
        self._disk.fault(step)
        super().xTruncate(newsize)
        self._take(step)

    def xSync(self, flags: int) -> None:
        step = Step("sync", self._file or "")
        try:
            self._disk.fault(step)
        except apsw.Error:
            self._take(Step("lost", step.file))
            if self._disk.forgetful:
                remembered = self._disk.platter.files[step.file].after_power_cut(nothing)
                super().xTruncate(0)
                super().xWrite(remembered, 0)
            raise
        # The real file is not synced: the log is what counts, and the tests are faster for it.
        self._take(step)

    def _take(self, step: Step) -> None:
        if self._file is not None:
            self._disk.take(step)


def failing(kind: Kind, code: int, *, nth: int = 1, times: int | None = 1, file: str = "") -> Fault:
    """A fault that fails the nth step of the kind and those after it, as many `times`; None: for ever.

    `code` is SQLite's, as `apsw.SQLITE_FULL`. Only files whose name ends with `file` are counted.
    """
    seen = count(1)

    def fault(step: Step) -> None:
        if step.kind == kind and step.file.endswith(file):
            number = next(seen)
            if number >= nth and (times is None or number < nth + times):
                error = apsw.exception_for(code)
                error.args = (f"failed on purpose: {step}",)
                raise error

    return fault


@dataclass(slots=True)
class Change:
    """A write or truncation on its way to the platter."""

    step: Step
    durable: bool = False
    lost: bool = False


@dataclass(slots=True)
class File:
    content: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    """Those that may still be missing from the content, in order, and those that follow one of them."""

    def sync(self) -> None:
        for change in self.changes:
            change.durable = not change.lost
        while self.changes and self.changes[0].durable:
            put(self.content, self.changes.pop(0).step, 1.0)

    def lose(self) -> None:
        for change in self.changes:
            change.lost = not change.durable

    def after_power_cut(self, kept: Kept) -> bytes:
        content = bytearray(self.content)
        for change in self.changes:
            put(content, change.step, 1.0 if change.durable else kept(change.step))
        return bytes(content)


Kept: TypeAlias = Callable[[Step], float]
"""How much of an unsynced step survives: from 0.0, nothing, to 1.0, all of it."""

Image: TypeAlias = dict[str, bytes]
"""The files of a disk and their content."""


class Platter:
    """What is durable, and what is only on its way."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}  # as the running process sees them
        self._durable: dict[str, File] = {}  # those whose names survive
        self._names: list[tuple[Step, File | None]] = []  # changes of names that may not

    def add(self, name: str, content: bytes) -> None:
        """A file that was there before."""
        self.files[name] = self._durable[name] = File(bytearray(content))

    def take(self, step: Step) -> None:
        if step.kind == "create":
            self.files[step.file] = File()
            self._names.append((step, self.files[step.file]))
        elif step.kind == "delete":
            self.files.pop(step.file, None)
            self._names.append((step, None))
        elif step.kind == "sync":
            self.files[step.file].sync()
            for name, file in self._names:
                _rename(self._durable, name.file, file)
            self._names.clear()
        elif step.kind == "lost":
            self.files[step.file].lose()
        elif step.kind != "mark":
            self.files[step.file].changes.append(Change(step))

    def after_power_cut(self, kept: Kept) -> Image:
        names = dict(self._durable)
        for name, file in self._names:
            if kept(name) < 0.5:
                break  # names are journaled: what comes after is gone too
            _rename(names, name.file, file)
        return {name: file.after_power_cut(kept) for name, file in names.items()}


def _rename(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file


def put(content: bytearray, step: Step, kept: float) -> None:
    if step.kind == "truncate":
        if kept >= 0.5:
            del content[step.offset :]
            content.extend(bytes(step.offset - len(content)))
    elif data := step.data[: round(len(step.data) * kept)]:
        content.extend(bytes(max(0, step.offset - len(content))))  # what was never written reads as zeros
        content[step.offset : step.offset + len(data)] = data


@dataclass(frozen=True, slots=True)
class PowerCut:
    """A moment at which the power went, what is left, and the marks that had been set."""

    after: str
    image: Image
    marks: tuple[Any, ...]

    def restore(self, folder: Path) -> None:
        """Make the folder what the machine finds when it starts again."""
        for path in folder.iterdir():
            path.unlink()
        for name, content in self.image.items():
            (folder / name).write_bytes(content)


def nothing(step: Step) -> float:
    return 0.0


def everything(step: Step) -> float:
    return 1.0


def by_chance(seed: int) -> Kept:
    """Each step survives or not as a coin falls; one in four is torn."""
    coin = random.Random(seed)

    def kept(step: Step) -> float:
        return coin.choice((0.0, 1.0, 1.0 if coin.random() < 0.5 else 0.0, coin.random()))

    return kept


def torn_end(step_log: Sequence[Step]) -> Kept:
    """All survives but the end of the last write."""
    last = step_log[-1] if step_log else None
    return lambda step: 0.6 if step is last else 1.0


def power_cuts(log: Sequence[Step], *, chances: int = 1, begin: Image | None = None) -> Iterator[PowerCut]:
    """Every state in which a power cut may find the disk, at each step of the log.

    At each moment: nothing unsynced survives; all of it does; all does but the last write is torn;
    and as many mixtures as `chances`. `begin` is what was on the disk before. Equal states with
    equal marks are given once.
    """
    platter = Platter()
    for name, content in (begin or {}).items():
        platter.add(name, content)
    marks: tuple[Any, ...] = ()
    given: set[int] = set()
    for number, step in enumerate(log):
        if step.kind == "mark":
            marks = (*marks, step.note)
        else:
            platter.take(step)
        choices: Iterable[tuple[str, Kept]] = (
            ("nothing", nothing),
            ("everything", everything),
            ("a torn end", torn_end(log[: number + 1])),
            *((f"chance {chance}", by_chance(hash((number, chance)))) for chance in range(chances)),
        )
        for what, kept in choices:
            image = platter.after_power_cut(kept)
            key = hash((len(marks), tuple(sorted(image.items()))))
            if key not in given:
                given.add(key)
                yield PowerCut(f"step {number} ({step}), {what} unsynced survives", image, marks)
