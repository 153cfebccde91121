"""A storage in a folder: a file appears under its name complete and durable, and the manifest is replaced by a rename.

Writers hold a lock on the folder, which `fencepost.spark.lake` and `fencepost.spark.view` take. So a file that the
manifest does not list belongs to no running writer, and the manifest needs no version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from ..durable import durable_file, write_durably
from .protocol import Contents, Version


@dataclass(frozen=True)
class Folder:
    folder: Path
    contents: Contents

    is_locked = True

    def name(self, path: str = "") -> str:
        return str(self.folder / path)

    def suffix(self) -> str:
        return ""

    @contextmanager
    def new_file(self, path: str, *, replace: bool = True) -> Iterator[Path]:
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        with durable_file(target, replace=replace) as draft:
            yield draft

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    @contextmanager
    def source(self, path: str) -> Iterator[Path]:
        yield self.folder / path

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        found = self.folder / path
        found.stat()
        yield found

    def listed(self, folder: str, *, before_s: float = inf) -> list[str]:
        return [path.name for path in (self.folder / folder).glob("*")]

    def delete(self, path: str) -> None:
        (self.folder / path).unlink(missing_ok=True)

    def read_manifest(self) -> tuple[bytes, Version | None] | None:
        try:
            return self.read(self.contents.manifest), None
        except FileNotFoundError:
            return None

    def replace_manifest(self, content: bytes, version: Version | None) -> Version | None:
        write_durably(self.folder / self.contents.manifest, content, replace=True)
        return None
