"""Copies a store while it is in use, with SQLite's online backup.

The copy is one consistent state of the store. `core.durable_file` gives it its name when it is complete and durable.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import Final

import apsw

from ...core.address import Address
from ...core.durable_file import durable_file
from ...errors import InvalidInput, StoreUnavailable
from .connections import connect, run, storage_errors, value
from .event_rows import HEAD
from .files import look_at, prepare_file
from .forks import Connection
from .page_checksums import damaged_pages, is_damage, name_damage, reserve_bytes
from .readonly import ImmutableConnection, cannot_write, connect_to_read

TIMEOUT_S: Final = 10.0
CACHE_KIB: Final = 16_384
SIDECARS: Final = ("-wal", "-shm", "-journal")  # what SQLite creates beside a file


def backup(path: str | os.PathLike[str] | Address, to: str | os.PathLike[str]) -> int:
    """Copy the store to a new file while other processes go on writing; returns the head of the copy.

    The copy has the permissions of the original. It replaces no file and follows no link.
    """
    address = Address.parse(path)
    source_path = address.path
    look_at(source_path, create=False)
    with (
        storage_errors(source_path),
        new_store_file(source_path, os.fspath(to)) as draft,
        closing(_connected(source_path, address.read_only)) as source,
    ):
        with storage_errors(str(draft)):
            head = _copy(source, str(draft))
        if isinstance(source, ImmutableConnection):
            source.check()
        return head


@contextmanager
def new_store_file(source: str, to: str) -> Iterator[Path]:
    """An empty file to write a copy of the store `source` into; it gets the name `to` when it is complete."""
    mode = stat.S_IMODE(os.stat(source).st_mode)
    try:
        with durable_file(to, mode=mode, sidecars=SIDECARS) as draft:
            yield draft
    except FileExistsError:
        raise InvalidInput("to", f"{to} exists already; name a new file") from None
    except OSError as error:
        raise StoreUnavailable(f"{to}: the file cannot be created: {error.strerror}") from error


def _connected(path: str, read_only: bool) -> Connection:
    """A connection for reading the whole store. A file that can be written is recovered first."""
    if not read_only:
        try:
            prepare_file(path, create=False, timeout_s=TIMEOUT_S)
            return connect(path, timeout_s=TIMEOUT_S, cache_kib=CACHE_KIB)
        except apsw.Error as error:
            if not cannot_write(error):
                raise
    return connect_to_read(path, timeout_s=TIMEOUT_S, cache_kib=CACHE_KIB)


def _copy(source: Connection, draft: str) -> int:
    """Copy everything, and return the head of the copy."""
    try:
        _copy_pages(source, draft)
    except apsw.IOError as error:
        if not is_damage(error):
            raise
        with name_damage(source.path, source):
            if damaged_pages(source, most=1, timeout_s=inf):
                raise
        # Only a free page is damaged, which holds nothing: copy the rows instead of the pages.
        os.truncate(draft, 0)
        run(source, "VACUUM INTO ?", (draft,))
    with closing(Connection(draft, flags=apsw.SQLITE_OPEN_READWRITE)) as target:
        # The copy is a single file: it has no write-ahead log beside it.
        run(target, "PRAGMA journal_mode = DELETE")
        return value(target, HEAD) or 0


def _copy_pages(source: Connection, draft: str) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    with closing(Connection(draft, flags=flags)) as target:
        # Pages that are written before the first one, which says that pages have checksums, would get none.
        reserve_bytes(target)
        run(target, "PRAGMA user_version = 1")
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(-1)
