"""A storage below a prefix of an object store: S3, Google Cloud Storage or Azure, through `obstore`.

Every object but the manifest has a name that no other writer uses, and never changes. The manifest is replaced only if
its ETag is the one that this writer has read (If-Match), and created only if none exists yet (If-None-Match). A store
that ignores these conditions is refused when a manifest is created. No two manifests are equal (`manifest`).

Credentials and the endpoint come from the environment of each process and are never sent to another one.
tests/spark/test_object_lakes.py and tests/spark/slow/test_object_lake_kills.py hold this, on a mock of S3.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from math import inf
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..errors import AccessDenied, InvalidInput, StoreError, StoreUnavailable
from ..redaction import scrubbed
from .protocol import Contents, ManifestChanged, Version, busy

try:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store, from_url
except ImportError as error:
    raise ImportError(f"{error}; an object store is used through obstore: pip install 'fencepost[lake]'") from error

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ObjectStore

PART_BYTES: Final = 16_777_216  # a larger file is sent in parts of this size
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
REQUEST_S: Final = 300.0  # enough for several parts at once over a slow line
RETRY_S: Final = 60.0
NO_VERSION: Final = '"fencepost-no-such-version"'


@dataclass(frozen=True)
class Objects:
    url: str
    contents: Contents

    is_locked = False

    def __reduce__(self) -> tuple[type[Objects], tuple[str, Contents]]:
        return Objects, (self.url, self.contents)  # without the client, which holds credentials

    @cached_property
    def _client(self) -> ObjectStore:
        try:
            return from_url(
                self.url,
                client_options={"allow_http": allows_http(), "timeout": timedelta(seconds=REQUEST_S)},
                retry_config={"retry_timeout": timedelta(seconds=RETRY_S)},
            )
        except (exceptions.BaseError, ValueError) as error:
            raise InvalidInput(self.contents.argument, f"{self.url}: {_said(error)}") from None

    def name(self, path: str = "") -> str:
        return f"{self.url}/{path}" if path else self.url

    def suffix(self) -> str:
        return f"-{token_hex(8)}"

    @contextmanager
    def new_file(self, path: str, *, replace: bool = True) -> Iterator[Path]:
        with TemporaryDirectory(prefix="fencepost-") as folder:
            draft = Path(folder, "draft")
            draft.touch()
            yield draft
            in_parts = replace and draft.stat().st_size > PART_BYTES  # only a put as a whole can be conditional
            mode: PutMode = "overwrite" if replace else "create"
            try:
                with self._reporting(path):
                    obstore.put(self._client, path, draft, use_multipart=in_parts, chunk_size=PART_BYTES, mode=mode)
            except exceptions.AlreadyExistsError:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.name(path)) from None

    def read(self, path: str) -> bytes:
        with self._reporting(path):
            return bytes(obstore.get(self._client, path).bytes())

    @contextmanager
    def source(self, path: str) -> Iterator[Any]:
        with self._reporting(path):
            yield _ObjectFile(self._client, path, obstore.head(self._client, path)["size"])

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="fencepost-") as folder:
            fetched = Path(folder, "fetched")
            with self._reporting(path), fetched.open("wb") as file:
                for piece in obstore.get(self._client, path).stream():
                    file.write(piece)
            yield fetched

    def listed(self, folder: str, *, before_s: float = inf) -> list[str]:
        with self._reporting(folder):
            found = [each for page in obstore.list(self._client, f"{folder}/") for each in page]
        old = (each["path"] for each in found if each["last_modified"].timestamp() < before_s)
        return [path.removeprefix(f"{folder}/") for path in old]

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._reporting(path):
            obstore.delete(self._client, path)

    def read_manifest(self) -> tuple[bytes, Version | None] | None:
        try:
            with self._reporting(self.contents.manifest):
                found = obstore.get(self._client, self.contents.manifest)
                return bytes(found.bytes()), (found.meta["e_tag"], found.meta["version"])
        except FileNotFoundError:
            return None

    def replace_manifest(self, content: bytes, version: Version | None) -> Version | None:
        try:
            written = self._put_if(self.contents.manifest, content, version)
        except (exceptions.PreconditionError, exceptions.AlreadyExistsError, StoreUnavailable) as error:
            # The answer to an earlier try of this request may have been lost: then the manifest is this one.
            found = self.read_manifest()
            if found is not None and found[0] == content:
                return found[1]
            if isinstance(error, StoreUnavailable):
                raise
            raise ManifestChanged(busy(self)) from None
        if version is None:
            self._check_conditions(content)
        return written

    def _put_if(self, path: str, content: bytes, version: Version | None) -> Version:
        """Replace the object of this version; without a version, create the object. Return the new version.

        If it has another version, or exists already, obstore raises `PreconditionError` or `AlreadyExistsError`.
        """
        mode: PutMode = "create"
        if version is not None:
            mode = {}
            if version[0] is not None:
                mode["e_tag"] = version[0]
            if version[1] is not None:
                mode["version"] = version[1]
        with self._reporting(path):
            put = obstore.put(self._client, path, content, mode=mode)
        return put["e_tag"], put["version"]

    def _check_conditions(self, content: bytes) -> None:
        """After a manifest was created: refuse a store that ignores conditions, as some that imitate S3 do."""
        if not isinstance(self._client, S3Store):
            return
        for version in (None, (NO_VERSION, None)):
            try:
                self._put_if(self.contents.manifest, content, version)
            except (exceptions.PreconditionError, exceptions.AlreadyExistsError):
                continue
            self.delete(self.contents.manifest)
            raise StoreError(
                f"{self.url}: this object store ignores the headers If-Match and If-None-Match, so two processes "
                "could overwrite each other's work; use a store that supports conditional writes, or a folder"
            )

    def overwrites(self, path: str) -> bool:
        """Whether the store ignores the condition that an object must not exist; tried on an object that exists.

        The object is put again with its own content, so that it stays as it is in any case.
        """
        try:
            self._put_if(path, self.read(path), None)
        except exceptions.AlreadyExistsError:
            return False
        return True

    @contextmanager
    def _reporting(self, path: str) -> Iterator[None]:
        """Turn obstore's errors into ours, but for those that a failed condition raises."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreUnavailable(f"{self.url}: there is no such bucket") from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name(path)) from None
        except (exceptions.PreconditionError, exceptions.AlreadyExistsError):
            raise
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise AccessDenied(f"{self.name(path)}: {_said(error)}") from None
        except exceptions.BaseError as error:
            raise StoreUnavailable(f"{self.name(path)}: {_said(error)}") from None


def allows_http() -> bool:
    """Whether the user has chosen an endpoint without encryption, which clients refuse unless they are told."""
    return any(urlsplit(os.environ.get(name, "")).scheme == "http" for name in ENDPOINTS)


def _said(error: Exception) -> str:
    """The first sentence of an error of obstore: what follows may quote requests, and with them credentials."""
    return scrubbed(str(error).partition("\n")[0].partition("<")[0].strip(" :-"))


class _ObjectFile(io.RawIOBase):
    """An object as a file that can be read from any offset: each read is one request."""

    def __init__(self, client: ObjectStore, path: str, size: int) -> None:
        self._client, self._path, self._size = client, path, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        found = bytes(obstore.get_range(self._client, self._path, start=self._at, end=end))
        self._at += len(found)
        return found
