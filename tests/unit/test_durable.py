"""A durable file appears complete or not at all, replaces only what it may, and follows no link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.durable_file import durable_file, sync, write_durably


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


def write(target: Path, content: bytes, then: Callable[[Path], object], **options: Any) -> None:
    """Write a durable file, and do something more before it is complete."""
    with durable_file(target, **options) as draft:
        draft.write_bytes(content)
        then(draft)


def interrupt(draft: Path) -> None:
    raise KeyboardInterrupt


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_file_gets_its_name_when_the_block_ends(target: Path) -> None:
    with durable_file(target) as draft:
        draft.write_bytes(b"half")
        assert not target.exists()
        draft.write_bytes(b"complete")
    assert target.read_bytes() == b"complete"
    assert names(target.parent) == ["report.json"]


def test_nothing_is_left_when_the_block_raises(target: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(target, b"half", interrupt)
    assert names(target.parent) == []


def test_the_old_file_stays_when_the_block_raises(target: Path) -> None:
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write(target, b"new", interrupt, replace=True)
    assert target.read_bytes() == b"old"
    assert names(target.parent) == ["report.json"]


def test_an_existing_file_is_not_replaced_unless_asked(target: Path) -> None:
    target.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_durably(target, b"new")
    assert target.read_bytes() == b"old"
    write_durably(target, b"new", replace=True)
    assert target.read_bytes() == b"new"
    assert names(target.parent) == ["report.json"]


def test_a_file_that_another_process_creates_meanwhile_is_not_replaced(target: Path) -> None:
    with pytest.raises(FileExistsError):
        write(target, b"mine", lambda draft: target.write_bytes(b"theirs"))
    assert target.read_bytes() == b"theirs"
    assert names(target.parent) == ["report.json"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_system_without_hard_links_is_no_excuse_to_replace_a_file(
    target: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    if taken:
        with pytest.raises(FileExistsError):
            write(target, b"mine", lambda draft: target.write_bytes(b"theirs"))
    else:
        write_durably(target, b"mine")
    assert target.read_bytes() == (b"theirs" if taken else b"mine")
    assert names(target.parent) == ["report.json"]


def test_other_errors_of_naming_the_file_are_raised(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_durably(target, b"content")
    assert names(target.parent) == []


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_at_the_target_is_not_followed(target: Path, dangling: bool) -> None:
    victim = target.with_name("victim")
    if not dangling:
        victim.write_bytes(b"precious")
    target.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_durably(target, b"new")
    write_durably(target, b"new", replace=True)
    assert not target.is_symlink()
    assert target.read_bytes() == b"new"
    assert victim.exists() is not dangling
    if not dangling:
        assert victim.read_bytes() == b"precious"


def test_a_draft_that_was_replaced_by_a_link_is_not_published(target: Path) -> None:
    victim = target.with_name("victim")
    victim.write_bytes(b"precious")

    def swap(draft: Path) -> None:
        draft.unlink()
        draft.symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        write(target, b"new", swap, mode=0o644)
    assert not target.exists()
    assert names(target.parent) == ["victim"]


def test_a_new_file_has_the_permissions_that_the_umask_leaves(target: Path) -> None:
    before = os.umask(0o027)
    try:
        write_durably(target, b"content")
    finally:
        os.umask(before)
    assert mode_of(target) == 0o640


def test_a_replacement_keeps_the_permissions_of_the_file(target: Path) -> None:
    target.write_bytes(b"old")
    target.chmod(0o604)
    with durable_file(target, replace=True) as draft:
        assert mode_of(draft) == 0o600, "private until it is complete"
    assert mode_of(target) == 0o604


def test_the_caller_may_name_the_permissions(target: Path) -> None:
    with durable_file(target, mode=0o444) as draft:
        assert mode_of(draft) == 0o600
        draft.write_bytes(b"content")
    assert mode_of(target) == 0o444


def test_files_that_the_writer_leaves_beside_the_draft_are_removed(target: Path) -> None:
    write(target, b"new", lambda draft: Path(f"{draft}-wal").write_bytes(b"log"), sidecars=("-wal", "-shm"))
    assert names(target.parent) == ["report.json"]


def test_a_long_name_leaves_room_for_the_name_of_the_draft(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_durably(target, b"content")
    assert target.read_bytes() == b"content"


def test_the_content_is_synced_before_the_name_and_the_folder_after_it(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def linked(draft: Path, target: Path) -> None:
        steps.append("name")
        link(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    write_durably(target, b"content")
    assert steps == ["content", "name", "folder"]


def test_a_folder_that_is_reached_through_a_link_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    sync(tmp_path / "link")
    write_durably(tmp_path / "link" / "file", b"content")
    assert (tmp_path / "folder" / "file").read_bytes() == b"content"
