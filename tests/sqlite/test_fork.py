"""A store does not cross a fork: SQLite's locks do not, so the child is told to open its own."""

from __future__ import annotations

from pathlib import Path

from tests.sqlite import forking

from fencepost.engines.sqlite import verify
from fencepost.testing.processes import Child


def test_a_forked_child_is_refused_and_the_parent_goes_on(path: Path, tmp_path: Path) -> None:
    with Child(forking.__file__, tmp_path / "reports", path) as child:
        child.result()
        append, read, head, again, ended, parent, log = child.lines()
    for refused in (append, read, head):
        assert refused.startswith("StoreClosed")
        assert "open it again in the child" in refused
    assert again == "2"
    assert ended == "child ended with 0"
    assert parent == "3"
    assert log == "['A', 'C', 'D']"
    assert verify(path).problems == []
