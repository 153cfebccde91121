"""A checksum at the end of every page, kept by SQLite's own extension `cksumvfs`.

The extension is a VFS. It computes the last eight bytes of a page when SQLite writes the page into the file, and
compares them whenever SQLite reads the page. A page that does not agree is an I/O error with a code of its own, on
every path through SQLite. `damaged_pages` finds out which pages these are.

The VFS goes by the header of the file: pages have checksums if the header reserves eight bytes at their end. So
`check_pages` makes sure that a connection compares. A page in the write-ahead log gets its checksum when it is copied
into the file. tests/sqlite/test_damage.py and tests/torture/damage.py check this.
"""

from __future__ import annotations

import ctypes
import re
import threading
from time import monotonic
from typing import Final

import apsw

from ...errors import StoreCorrupt, StoreUnavailable

VFS: Final = "cksmvfs"
RESERVED_BYTES: Final = 8

WHAT_TO_DO: Final = "`fencepost verify` shows what is damaged, `fencepost salvage` saves the rest"

NAMED_PAGES: Final = 10  # damaged pages that an error names
SEARCH_S: Final = 2.0  # how long an error waits for their numbers
REMEMBERED_S: Final = 60.0  # how long errors name the same pages without another search

# What the integrity check says about a page that cannot be read.
_PAGE: Final = re.compile(r"page (\d+): unable to get the page|failed to get page (\d+)")

_loading = threading.Lock()
_remembered: dict[str, tuple[float, list[int]]] = {}


def load() -> None:
    """Register the VFS in this process, once. The default VFS of other connections stays what it was."""
    with _loading:
        if VFS in apsw.vfs_names():
            return
        default = apsw.vfs_names()[0]
        try:
            import apsw.sqlite_extra as extra

            extra.load(apsw.Connection(":memory:"), "cksumvfs")
            apsw.set_default_vfs(default)
        except (ImportError, AttributeError, ValueError, OSError, apsw.Error) as error:
            raise StoreUnavailable(
                f"this installation of apsw lacks SQLite's extension cksumvfs, which checks the pages of a store "
                f"({error}); install apsw from PyPI: pip install --force-reinstall apsw"
            ) from error


def reserve_bytes(connection: apsw.Connection) -> None:
    """Make room for checksums in the pages of an empty file, before its first page is written."""
    reserved = ctypes.c_int(RESERVED_BYTES)
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(reserved))


def checks_pages(connection: apsw.Connection) -> bool:
    """Whether the connection computes and compares checksums. It has to have read, or written, the first page."""
    return bool(connection.execute("PRAGMA checksum_verification").get == "1")


def check_pages(connection: apsw.Connection, path: str) -> None:
    """Raise StoreCorrupt if the header does not say that pages have checksums, so that none would be compared."""
    if not checks_pages(connection):
        raise StoreCorrupt(f"{path}: page 1 is damaged: its header does not reserve room for checksums; {WHAT_TO_DO}")


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite has read a page that does not agree with its checksum."""
    return isinstance(error, apsw.IOError) and error.extendedresult == apsw.SQLITE_IOERR_DATA  # type: ignore[attr-defined]


def damage(path: str, connection: apsw.Connection | None) -> StoreCorrupt:
    """The error for a page that does not agree with its checksum, with the numbers of the damaged pages."""
    pages = [] if connection is None else _pages_now(path, connection)
    if not pages:
        which = "a page of the file does"
    elif len(pages) == 1:
        which = f"page {pages[0]} does"
    else:
        which = f"pages {', '.join(map(str, pages))} do"
    return StoreCorrupt(f"{path}: {which} not agree with the checksum; {WHAT_TO_DO}")


class name_damage:
    """Turns the error for a damaged page into StoreCorrupt while the connection can still say which page it is."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        self._path = path
        self._connection = connection

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if is_damage(error):
            raise damage(self._path, self._connection) from error


def _pages_now(path: str, connection: apsw.Connection) -> list[int]:
    until, pages = _remembered.get(path, (0.0, []))
    if monotonic() >= until:
        pages = damaged_pages(connection, most=NAMED_PAGES, timeout_s=SEARCH_S)
        if pages:
            _remembered[path] = monotonic() + REMEMBERED_S, pages
    return pages


def damaged_pages(connection: apsw.Connection, *, most: int, timeout_s: float) -> list[int]:
    """The numbers of the first damaged pages; as many as are found in the time given."""
    deadline = monotonic() + timeout_s
    connection.set_progress_handler(lambda: monotonic() > deadline, 1_000, id="damaged_pages")
    found: dict[int, None] = {}
    try:
        for (text,) in connection.execute(f"PRAGMA quick_check({most})"):
            found.update((page, None) for page in unreadable_pages(text))
    except (apsw.IOError, apsw.CorruptError, apsw.InterruptError):
        # After the trees come the rows, and reading those fails on the same pages. Without page 1 nothing is read.
        found = found or {1: None}
    except apsw.Error:
        return []
    finally:
        connection.set_progress_handler(None, id="damaged_pages")
    return sorted(found)


def unreadable_pages(text: str) -> list[int]:
    """The pages that a message of the integrity check says could not be read."""
    return [int(first or second) for first, second in _PAGE.findall(text)]
