"""`FilePublisher` and `LogPublisher`: messages as lines of JSON in a file, or in a logger.

The file is appended to and synced before the batch counts as published. A process that dies in the middle of a write
leaves a line without its end. That message was never acknowledged and is sent again, so the next writer removes the
torn line first. A file that was renamed, for example by logrotate, is left alone and a new one is begun.
tests/consumers/outbox/test_files.py holds that every line is complete.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from ...engine import sync
from .messages import Message
from .publisher import OneAtATime

PIECE = 65_536


class FilePublisher(OneAtATime):
    """Appends each message as a line of JSON to the file at `path`, durably."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = Path(os.path.abspath(path))
        self._descriptor: int | None = None

    def _publish(self, messages: Sequence[Message]) -> None:
        content = b"".join(message.line + b"\n" for message in messages)
        descriptor = self._open()
        # Another process may still believe that it leads.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            self._append(descriptor, content)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _open(self) -> int:
        if self._descriptor is not None:
            if _same(self._descriptor, self._path):
                return self._descriptor
            self._close()
        existed = self._path.exists()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not existed:
            sync(self._path.parent)
        return self._descriptor

    def _append(self, descriptor: int, content: bytes) -> None:
        end = _whole(descriptor)
        os.ftruncate(descriptor, end)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            os.ftruncate(descriptor, end)  # the disk is full: leave no torn line
            raise
        os.fsync(descriptor)  # if it fails, what the kernel holds of this file cannot be trusted, so it is closed

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __repr__(self) -> str:
        return f"<file {self._path}>"


class LogPublisher:
    """Logs each message as a line of JSON, at the level INFO by default. For development, and for log collectors."""

    def __init__(self, logger: str | logging.Logger, *, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    def publish(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._logger.log(self._level, "%s", message.line.decode())

    def close(self) -> None:
        """Nothing: the logger belongs to the program."""

    def __repr__(self) -> str:
        return f"<logger {self._logger.name}>"


def _same(descriptor: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def _whole(descriptor: int) -> int:
    """The length of the file up to the end of its last complete line."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - PIECE)
        at = os.pread(descriptor, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
