"""`verify`, `backup` and `salvage` find the engine by the address, and refuse stores of other kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

import fencepost
from fencepost import Event, InvalidInput
from fencepost.engine import KINDS, Address, backup, salvage, verify


def test_they_work_on_the_address_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with fencepost.open(path) as store:
        store.append([Event("A")])
    assert verify(f"sqlite:{path}").events == 1
    assert verify(Address.parse(f"{path}?mode=ro")).sound
    assert backup(path, tmp_path / "copy.db") == 1
    assert salvage(path, tmp_path / "saved.db").complete


def test_a_store_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="verify works on files, but this is a memory store"):
        verify("memory:")
    with pytest.raises(InvalidInput, match="backup works on files"):
        backup("postgresql://host/db", tmp_path / "copy.db")
    assert [kind.name for kind in KINDS if kind.file_tools] == ["SQLite"]
