"""Checks a whole file and returns a report, whatever the bytes are. The file is not changed.

This module looks at the header and the write-ahead log first, without SQLite, and then lets `verify_tables` check
what SQLite can read. Each problem names the damaged part: the index can be built again from the log, the log cannot.
If the log is damaged, its pages are read one by one, so that the report still says which events are whole.
tests/sqlite/test_verify_and_salvage.py and tests/torture/damage.py hold this.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Final
from urllib.parse import quote

import apsw

from ...address import Address
from ...errors import FormatUnsupported, StoreCorrupt
from .connections import run, storage_errors, value
from .files import APPLICATION, FORMAT, empty, look_at, size_of
from .forks import Connection
from .page_file import PageFile
from .page_scan import Scan, scan_pages
from .readonly import connect_to_read
from .report import FILE, LOG, Report, extend
from .verify_tables import Verification

TIMEOUT_S: Final = 10.0
CACHE_KIB: Final = 65_536


def verify(path: str | os.PathLike[str], *, on_progress: Callable[[int, int], None] | None = None) -> Report:
    """Check every event and every posting. `on_progress(done, all)` is called from time to time."""
    address = Address.parse(path)
    name = address.path
    report = Report(name)
    try:
        look_at(name, create=False)
    except StoreCorrupt as error:
        report.add(FILE, "file", str(error))
    with storage_errors(name):
        if _check_header(name, report):
            try:
                with closing(_connected(name, address.read_only)) as connection:
                    run(connection, "BEGIN")  # one state of the file; closing ends it
                    Verification(connection, report, on_progress).run()
            except (apsw.BusyError, apsw.LockedError):
                raise
            except apsw.Error as error:
                report.add(FILE, "file", f"SQLite cannot open it: {error}")
    if not report.log_is_sound:
        _find_whole(name, report)
    return report


def _check_header(path: str, report: Report) -> bool:
    """Whether SQLite can read the file at all. Raises FormatUnsupported if this was never a store."""
    with PageFile(path) as pages:
        header, size = pages.header, pages.size
        broken = pages.log.broken_frame
        has_tables = size < len(header) or any(pages.cells(1))
    if size < len(header):
        report.add(FILE, "file", f"has {size} bytes, less than the header of a store")
        return False
    if broken is not None:
        report.add(LOG, "write-ahead log", f"frame {broken} is damaged; SQLite ignores it and all frames behind it")
    version = int.from_bytes(header[60:64], "big")
    is_sqlite = header[:16] == b"SQLite format 3\0"
    if is_sqlite and header[68:72] == APPLICATION.to_bytes(4, "big"):
        if version > FORMAT:
            what = f"written in format {version}; this version of Fencepost reads up to {FORMAT}: upgrade Fencepost"
            report.add(FILE, "header", f"{what}, unless the header is damaged")
            return False
        expected = int.from_bytes(header[28:32], "big") * pages.page_bytes
        if size < expected:
            lacking = f"pages {size // pages.page_bytes + 1} to {expected // pages.page_bytes} are missing or cut"
            report.add(FILE, "file", f"is truncated: {lacking}")
        return True
    if is_sqlite and not has_tables and not any(header[68:72]):
        raise empty(path)
    if not _scanned(path).events:
        kind = "an SQLite database, but" if is_sqlite else "not an SQLite database, so"
        raise FormatUnsupported(f"{path}: {kind} not a Fencepost store")
    what = "says that this is not a Fencepost store" if is_sqlite else "says that this is not an SQLite file"
    report.add(FILE, "header", f"{what}, but its pages hold events")
    return is_sqlite


def _connected(path: str, read_only: bool) -> apsw.Connection:
    """A connection that leaves the file as it is: it does not copy the write-ahead log into it."""
    if read_only:
        return connect_to_read(path, timeout_s=TIMEOUT_S, cache_kib=CACHE_KIB)
    has_log = size_of(f"{path}-wal") > 0
    try:
        connection = _configured(Connection(path, flags=apsw.SQLITE_OPEN_READWRITE), has_log)
        if connection.readonly("main") and not has_log:
            # Reading would leave a log that belongs to this user, and that the writer perhaps could not write.
            connection.close()
            raise apsw.ReadOnlyError("the file cannot be written")
        value(connection, "PRAGMA schema_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        if has_log:
            raise
        # There is no write-ahead log, and none can be created: all of the store is in the file.
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        uri = f"file:{quote(os.path.abspath(path))}?immutable=1"
        connection = _configured(Connection(path, uri=uri, flags=flags), has_log)
    return connection


def _configured(connection: apsw.Connection, has_log: bool) -> apsw.Connection:
    connection.set_busy_timeout(int(TIMEOUT_S * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(has_log))
    return connection


def _find_whole(path: str, report: Report) -> None:
    """Report which events are whole on their pages, also where SQLite cannot read."""
    found = _scanned(path)
    report.whole = []
    for position in sorted(found.events):
        extend(report.whole, position)
    for number in found.damaged_pages:
        report.add(FILE, f"page {number}", "is damaged")


def _scanned(path: str) -> Scan:
    with PageFile(path) as pages:
        return scan_pages(pages)
