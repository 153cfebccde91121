"""Manifests: small JSON files that say which other files belong to a folder of data.

Lakes and views keep one each. A manifest is read whole and replaced whole, so a reader sees the old content or the
new one. Its field `format` says how it is written; a newer format than the reader knows is refused before anything
else is decoded. tests/unit/test_manifests.py holds this.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from .durable import write_durably
from .errors import FormatUnsupported, StoreCorrupt

Content = TypeVar("Content", bound=msgspec.Struct)


def read_manifest(path: Path, kind: type[Content], *, name: str, newest_format: int) -> Content | None:
    """The manifest of a `name` (lake, view), or None if the file does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return decoded(text, str(path), kind, name=name, newest_format=newest_format)


def write_manifest(path: Path, content: msgspec.Struct) -> None:
    """Replace the manifest in one step; it is durable when this returns."""
    write_durably(path, encoded(content), replace=True)


def decoded(text: bytes, path: str, kind: type[Content], *, name: str, newest_format: int) -> Content:
    """The manifest that was read from `path`, which messages name."""
    try:
        written = int(bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))))
        if written > newest_format:
            raise FormatUnsupported(
                f"{path}: written in format {written}; this version of Fencepost reads formats up to {newest_format}: "
                "upgrade Fencepost"
            )
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorrupt(f"{path}: not a {name}'s manifest: {error}") from None


def encoded(content: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1)
