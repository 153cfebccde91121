"""Manifests are read whole, replaced whole, and refused if they are damaged or too new."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fencepost import FormatUnsupported, StoreCorrupt
from fencepost.manifests import read_manifest, write_manifest


class Kept(msgspec.Struct, frozen=True):
    format: int = 1
    names: tuple[str, ...] = ()


def read(path: Path) -> Kept | None:
    return read_manifest(path, Kept, name="shelf", newest_format=1)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    assert read(path) is None
    write_manifest(path, Kept(names=("a",)))
    write_manifest(path, Kept(names=("a", "b")))
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
