"""The entries of a lake's manifest: files of events, files of recorded appends, and segments of the list itself."""

from __future__ import annotations

from typing import Final

import msgspec

from ...storage import VersionedManifest

MANIFEST: Final = "manifest.json"


class AppendsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded appends whose last event is in a file of events."""

    path: str
    rows: int
    bytes: int
    sha256: str


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of events: all events with after < position <= upto, and no others."""

    path: str  # relative to the folder
    after: int
    upto: int
    first: int
    last: int
    rows: int
    bytes: int
    sha256: str
    appends: AppendsFile | None = None

    def overlaps(self, after: int, upto: int) -> bool:
        """Whether the file has an event with after < position <= upto, if positions have no gaps."""
        return self.first <= upto and self.last > after


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that holds the entries of consecutive files of events, and never changes."""

    path: str
    files: int
    upto: int
    sha256: str


class LakeManifest(VersionedManifest, frozen=True, kw_only=True):
    """The files, in order and without a gap between them."""

    format: int = 1
    segments: tuple[Segment, ...] = ()
    files: tuple[LakeFile, ...] = ()  # all of them in memory; on disk those that are in no segment

    @property
    def upto(self) -> int:
        """The lake holds every event up to this position."""
        return self.files[-1].upto if self.files else 0

    def paths(self) -> set[str]:
        """Every file that belongs to the lake."""
        appends = {file.appends.path for file in self.files if file.appends}
        return {file.path for file in self.files} | appends | {segment.path for segment in self.segments}
