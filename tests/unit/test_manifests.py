"""Manifests are read whole, replaced whole, and refused if they are damaged or too new."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import FormatUnsupported, StoreCorrupt
from fencepost.storage import Contents, Folder, VersionedManifest, commit_manifest, stored_manifest

SHELF = Contents("shelf", "manifest.json", "folder", "writing", "write it again")


class Kept(VersionedManifest, frozen=True):
    format: int = 1
    names: tuple[str, ...] = ()


def read(path: Path) -> Kept | None:
    return stored_manifest(Folder(path.parent, SHELF), Kept, newest_format=1)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    assert read(path) is None
    commit_manifest(Folder(tmp_path, SHELF), Kept(names=("a",)))
    commit_manifest(Folder(tmp_path, SHELF), Kept(names=("a", "b")))
    assert read(path) == Kept(names=("a", "b"))
    assert [each.name for each in tmp_path.iterdir()] == ["manifest.json"], "no draft is left behind"


def test_a_newer_format_is_refused_whatever_else_it_says(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{"format": 2, "names": {"written": "otherwise"}}')
    with pytest.raises(FormatUnsupported, match=r"format 2.*up to 1.*upgrade"):
        read(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "one"}', '{"format": 1, "names": 7}'])
def test_anything_else_is_damage(tmp_path: Path, text: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(StoreCorrupt, match="not a shelf's manifest"):
        read(path)
