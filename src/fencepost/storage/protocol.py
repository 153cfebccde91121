"""What a storage offers: the few operations on files that lakes, views and their readers need.

A storage is a folder (`folder`) or a prefix of an object store (`objects`). Both put complete new files, read, list and
delete them, and replace the manifest. They differ in how two writers are kept apart. A folder has a lock, so one
process at a time changes it. An object store has none: there the manifest is replaced only if it is still the one that
the writer has read, and no two writers use the same names (docs/decisions/082-lakes-in-object-stores.md).
tests/spark/test_object_lakes.py and tests/spark/test_object_views.py run on both kinds.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from ..address import object_url
from ..errors import StoreUnavailable

LEFT_S: Final = 3_600.0  # until a file in an object store that no manifest lists is removed: its writer may be alive

Version: TypeAlias = tuple[str | None, str | None]
"""The ETag and the version, or generation, of an object."""


class ManifestChanged(StoreUnavailable):
    """Another process has replaced the manifest since it was read. Nothing was committed; trying again helps."""


@dataclass(frozen=True)
class Contents:
    """What a storage holds, for the name of its manifest and for messages."""

    name: str  # lake, view
    manifest: str  # the name of the file
    argument: str  # that callers name the storage by
    writing: str  # what its writers do: "exporting into this lake"
    repair: str  # what to do about a damaged file


class Storage(Protocol):
    """The files of one lake or view. A path is relative to the storage, with slashes; the value can be pickled."""

    def __hash__(self) -> int:
        """Storages of the same files are equal."""

    @property
    def contents(self) -> Contents: ...

    @property
    def is_locked(self) -> bool:
        """Whether writers hold a lock, so that files that the manifest does not list belong to no running writer."""

    def name(self, path: str = "") -> str:
        """The storage or a file of it as a user names it."""

    def suffix(self) -> str:
        """What the name of a new file ends in, before its extension: empty where a lock keeps writers apart."""

    def new_file(self, path: str, *, replace: bool = True) -> AbstractContextManager[Path]:
        """Yield an empty local file to fill; when the block ends, it is a file of the storage, complete and durable.

        Without `replace`, an existing file stays, and FileExistsError is raised.
        """

    def read(self, path: str) -> bytes:
        """The content; FileNotFoundError if there is no such file."""

    def source(self, path: str) -> AbstractContextManager[Any]:
        """What pyarrow reads a part of the file from."""

    def local(self, path: str) -> AbstractContextManager[Path]:
        """The whole file as a local one; FileNotFoundError if there is no such file."""

    def listed(self, folder: str, *, before_s: float = inf) -> list[str]:
        """The names in a folder of the storage. Without a lock, only of files that were written before `before_s`,
        and also those in folders below, as paths."""

    def delete(self, path: str) -> None:
        """Delete the file. A missing file is ignored."""

    def read_manifest(self) -> tuple[bytes, Version | None] | None:
        """The manifest and its version; None if the storage has no manifest."""

    def replace_manifest(self, content: bytes, version: Version | None) -> Version | None:
        """Replace the manifest in one step and durably; returns its new version.

        `version` is that of the manifest that this writer has read, None if there was none. Where there is no lock,
        `ManifestChanged` is raised if the manifest has another version by now.
        """


def busy(storage: Storage) -> str:
    """The message for callers when another process is writing to the storage."""
    return f"{storage.name()}: another process is {storage.contents.writing}; try again later"


def storage_at(place: Path | str, contents: Contents) -> Storage:
    """The storage in a folder, or below the prefix that a URL names."""
    from .folder import Folder

    url = object_url(place, contents.argument) if isinstance(place, str) else None
    if url is None:
        return Folder(Path(place), contents)
    from .objects import Objects

    return Objects(url, contents)
