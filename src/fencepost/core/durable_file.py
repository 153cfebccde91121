"""Files that appear under their name complete and durable, or not at all.

A writer that creates a file in place leaves a truncated file if it is killed, and a file without content if the
power fails before the kernel has written it. So the content goes into a temporary file in the same folder, the file
is synced, it gets its name in one step, and the folder is synced.

Invariant: a process that opens the target sees the old file, or none, or the complete new one. An existing file is
replaced only if the caller says so. A symbolic link at the target is never followed.
tests/unit/test_durable.py holds this.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

NO_HARD_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
LONGEST_PREFIX: Final = 40  # characters of the target's name: a file name has at most 255 bytes


@contextmanager
def durable_file(
    target: str | os.PathLike[str], *, replace: bool = False, mode: int | None = None, sidecars: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield the path of an empty temporary file; when the block ends, give that file the name `target`, durably.

    If the block raises, the temporary file is removed and the target stays as it was.

    - `replace`: whether an existing file may be replaced. If not, FileExistsError is raised.
    - `mode`: the permissions of the new file. By default it has those of the file that it replaces, or else those
      that the umask leaves. A file with a given or inherited mode is private to this user while it is written.
    - `sidecars`: suffixes of files that the writer may leave beside the temporary file. They are removed.
    """
    target = Path(os.path.abspath(target))
    old_mode = _mode_of(target)
    if old_mode is not None and not replace:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    mode = old_mode if mode is None else mode
    draft = _create_draft(target, private=mode is not None)
    try:
        yield draft
        sync(draft, mode=mode)
        if replace:
            os.replace(draft, target)
        else:
            _name_new_file(draft, target)
        sync(target.parent)
    finally:
        for suffix in ("", *sidecars):
            with suppress(FileNotFoundError):
                os.unlink(f"{draft}{suffix}")


def write_durably(
    target: str | os.PathLike[str], content: bytes, *, replace: bool = False, mode: int | None = None
) -> None:
    """Write a whole file as `durable_file` does."""
    with durable_file(target, replace=replace, mode=mode) as draft:
        draft.write_bytes(content)


def sync(path: str | os.PathLike[str], *, mode: int | None = None) -> None:
    """Make the content of a file durable, or the names in a folder; `mode` sets the permissions first."""
    # A folder may be reached through a link. A file that this process has just written is not a link.
    descriptor = os.open(path, os.O_RDONLY | (0 if os.path.isdir(path) else os.O_NOFOLLOW))
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(target: Path) -> int | None:
    """The permissions of an existing file; None if there is none. A link has no permissions of its own to keep."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    return 0o600 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)


def _create_draft(target: Path, *, private: bool) -> Path:
    """An empty file beside the target, under a name that no other process can predict, hidden from listings."""
    draft = target.with_name(f".{target.name[:LONGEST_PREFIX]}.{token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    os.close(os.open(draft, flags, 0o600 if private else 0o666))
    return draft


def _name_new_file(draft: Path, target: Path) -> None:
    """Give the draft its name; FileExistsError if another process has taken that name meanwhile."""
    try:
        os.link(draft, target)
        return
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
    # This file system has no hard links. Reserve the name with an empty file, which the draft then replaces.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    os.replace(draft, target)
