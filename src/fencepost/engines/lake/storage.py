"""Where a lake is kept: the few operations on its files that exports, compactions and readers need.

A lake is in a folder (`folder`) or below a prefix of an object store (`objects`). Both put complete new files, read,
list and delete them, and replace the manifest. They differ in how two writers are kept apart. A folder has a lock, so
one process at a time changes it. An object store has none: there the manifest is replaced only if it is still the one
that the writer has read, and no two writers use the same names (docs/decisions/082-lakes-in-object-stores.md).

Functions that take a lake take its storage, a `Path` of a folder, or the text of a path or URL.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from ...address import object_url
from ...errors import StoreUnavailable

Version: TypeAlias = tuple[str | None, str | None]
"""The ETag and the version, or generation, of an object."""


class LakeChanged(StoreUnavailable):
    """Another process has replaced the manifest since it was read. Nothing was committed; trying again helps."""


class Storage(Protocol):
    """The files of one lake. A path is relative to the lake, with slashes; the value can be sent to other processes."""

    def __hash__(self) -> int:
        """Storages of the same lake are equal."""

    @property
    def is_locked(self) -> bool:
        """Whether writers hold a lock, so that files that the manifest does not list belong to no running writer."""

    def name(self, path: str = "") -> str:
        """The lake or a file of it as a user names it."""

    def suffix(self) -> str:
        """What the name of a new file ends in, before its extension: empty where a lock keeps writers apart."""

    def new_file(self, path: str) -> AbstractContextManager[Path]:
        """Yield an empty local file to fill; when the block ends, it is a file of the lake, complete and durable."""

    def put(self, path: str, content: bytes) -> None:
        """Write a whole small file, durably."""

    def read(self, path: str) -> bytes:
        """The content; FileNotFoundError if there is no such file."""

    def source(self, path: str) -> AbstractContextManager[Any]:
        """What pyarrow reads a part of the file from."""

    def local(self, path: str) -> AbstractContextManager[Path]:
        """The whole file as a local one; FileNotFoundError if there is no such file."""

    def listed(self, folder: str, *, before_s: float = inf) -> list[str]:
        """The names of the files in a folder of the lake. Without a lock, only those written before `before_s`."""

    def delete(self, path: str) -> None:
        """Delete the file. A missing file is ignored."""

    def read_manifest(self) -> tuple[bytes, Version | None] | None:
        """The manifest and its version; None if there is no lake."""

    def replace_manifest(self, content: bytes, version: Version | None) -> Version | None:
        """Replace the manifest in one step and durably; returns its new version.

        `version` is that of the manifest that this writer has read, None if there was none. Where there is no lock,
        `LakeChanged` is raised if the manifest has another version by now.
        """


Place: TypeAlias = Storage | Path | str


def storage_of(place: Place) -> Storage:
    """The storage of a lake, which may be given as a path or a URL."""
    from .folder import Folder

    if isinstance(place, str):
        url = object_url(place, "lake")
        if url is not None:
            from .objects import Objects

            return Objects(url)
        place = Path(place)
    return Folder(place) if isinstance(place, Path) else place
