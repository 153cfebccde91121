"""Paths of folders and files, also written as `file:` URLs; other file systems are refused, but for lakes; and the
storage of a lake.

A text such as `s3a://bucket/lake` is also a valid relative path. Without this check it would silently become a folder
of that name below the working directory. A lake may be in an object store. tests/unit/test_paths.py holds this.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, TypeAlias

from ...address import object_url
from ...errors import InvalidInput
from ...storage import Contents, Storage, storage_at
from .entries import MANIFEST

LAKE: Final = Contents(
    "lake", MANIFEST, argument="lake", writing="exporting into this lake", repair="run `fencepost lake verify`"
)

Place: TypeAlias = Storage | Path | str

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def local_path(given: str | os.PathLike[str], name: str) -> str:
    """The path; raises `InvalidInput` for a URL of another file system. `name` is the argument or option.

    >>> local_path("file:///data/lake", "folder"), local_path("data/lake", "folder")
    ('/data/lake', 'data/lake')
    """
    text = os.fspath(given)
    scheme = _SCHEME.match(text)
    if scheme is None or (scheme[1] != "file" and os.path.lexists(text)):
        return text
    rest = text[scheme.end() :]
    if scheme[1] != "file":
        raise InvalidInput(
            name,
            f"{text!r:.80} is not on a file system that Fencepost can use: it needs a path that the driver and all "
            f"workers can open, such as a mounted folder. A folder with this name is ./{text:.80}",
        )
    if not rest:
        raise InvalidInput(name, "a path is needed after file:")
    return "/" + rest.lstrip("/") if rest.startswith("/") else rest


def lake_location(given: str | os.PathLike[str], name: str) -> str:
    """The URL of a lake in an object store, or else the path of its folder.

    >>> lake_location("s3a://bucket/lake/", "folder"), lake_location("data/lake", "folder")
    ('s3://bucket/lake', 'data/lake')
    """
    return object_url(os.fspath(given), name) or local_path(given, name)


def absolute_lake(given: str | os.PathLike[str], name: str) -> str:
    """The same lake in a process with another working directory."""
    return object_url(os.fspath(given), name) or str(Path(local_path(given, name)).absolute())


def storage_of(place: Place) -> Storage:
    """The storage of a lake, which may be given as a path or a URL."""
    return storage_at(place, LAKE) if isinstance(place, (Path, str)) else place
