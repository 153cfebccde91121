"""API keys, kept in a file as hashes.

A key is 256 random bits, so a plain SHA-256 of it cannot be guessed back; the file never holds the key itself. The
server looks at the file's time and size four times a second and loads it again when they change: a key that is added or
revoked counts within a second, without a restart. The file is replaced as a whole, so the server never sees half
of it. A file that cannot be read changes nothing: the keys from before stay in force, and the log says so.
tests/server/test_keys.py checks this.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from ..engine import checked_tags, checked_type, write_durably
from ..errors import InvalidInput, StoreUnavailable
from .access import Access, Right, Scope

log: Final = logging.getLogger("fencepost.server")

PREFIX: Final = "fp_"
LOOK_EVERY_S: Final = 0.25  # with the time between looks at open streams, less than a second
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")  # no slash, which ends it in the names of checkpoints


class StoredKey(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    hash: str
    rights: list[Right]
    created: datetime
    expires: datetime | None = None
    tags: list[str] = []
    types: list[str] = []

    def access(self) -> Access:
        scope = Scope(frozenset(self.tags), frozenset(self.types))
        return Access(self.name, frozenset(self.rights), scope, self.hash)

    @property
    def is_expired(self) -> bool:
        return self.expires is not None and self.expires <= datetime.now(timezone.utc)


@dataclass(frozen=True)
class NewKey:
    """A key as it is shown once, when it is made."""

    name: str
    secret: str

    def __repr__(self) -> str:
        return f"NewKey(name={self.name!r})"


class KeyFile:
    """The keys in a file, as the server sees them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # it is read again later, perhaps from another working directory
        self._looked_at = monotonic()
        self._state = state_of(self.path)
        if not self.path.exists():
            raise InvalidInput("keys", f"{self.path} does not exist; make a key with `fencepost keys add`")
        self._by_hash = {key.hash: key for key in read_keys(self.path)}

    def find(self, secret: str) -> Access | None:
        """What the key allows, or None if it is unknown, revoked or expired."""
        self.look()
        digest = hashed(secret)
        key = self._by_hash.get(digest)
        if key is None or not hmac.compare_digest(key.hash, digest) or key.is_expired:
            return None
        return key.access()

    def is_valid(self, access: Access) -> bool:
        """Whether the key still allows exactly this."""
        self.look()
        key = self._by_hash.get(access.key)
        return key is not None and not key.is_expired and key.access() == access

    def look(self) -> None:
        """Load the file again if it has changed, at most every LOOK_EVERY_S seconds.

        While it is broken or missing, the old keys stay.
        """
        if monotonic() - self._looked_at <= LOOK_EVERY_S:
            return
        self._looked_at = monotonic()
        state = state_of(self.path)
        if state == self._state:
            return
        self._state = state
        try:
            self._by_hash = {key.hash: key for key in read_keys(self.path, missing_ok=False)}
        except StoreUnavailable as error:
            log.warning("the changed file of API keys is not used, the keys from before stay in force: %s", error)


def state_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:  # the file is missing or cannot be reached; reading it raises an error that says so
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_keys(path: Path, *, missing_ok: bool = True) -> list[StoredKey]:
    """The keys in the file; if there is no such file, none or an error."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[StoredKey])
    except OSError as error:
        if missing_ok and isinstance(error, FileNotFoundError):
            return []
        raise StoreUnavailable(f"{path}: the API keys cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"{path}: not a file of API keys: {error}") from None


def add_key(
    path: Path,
    name: str,
    *,
    rights: frozenset[Right],
    expires: datetime | None = None,
    tags: frozenset[str] = frozenset(),
    types: frozenset[str] = frozenset(),
) -> NewKey:
    """Make a key and keep its hash in the file. The secret is shown once."""
    if not NAME.fullmatch(name):
        raise InvalidInput("name", f"1 to 64 letters, digits, '.', '_' and '-' are allowed, not {name!r:.80}")
    if not rights:
        raise InvalidInput("rights", "at least 1 right is needed")
    if expires is not None and expires.tzinfo is None:
        raise InvalidInput("expires", "a time zone is needed")
    keys = read_keys(path)
    if any(key.name == name for key in keys):
        raise InvalidInput("name", f"there is a key named {name!r} already; revoke it first, or choose another name")
    secret = PREFIX + secrets.token_urlsafe(32)
    made = StoredKey(
        name,
        hashed(secret),
        sorted(rights, key=lambda right: right.value),
        datetime.now(timezone.utc).replace(microsecond=0),
        expires,
        sorted(checked_tags(tags, "tags")),
        sorted(checked_type(each, "types") for each in types),
    )
    _write(path, [*keys, made])
    return NewKey(name, secret)


def revoke_key(path: Path, name: str) -> None:
    keys = read_keys(path)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        raise InvalidInput("name", f"there is no key named {name!r} in {path}")
    _write(path, left)


def hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _write(path: Path, keys: list[StoredKey]) -> None:
    write_durably(path, msgspec.json.format(msgspec.json.encode(keys), indent=1) + b"\n", replace=True, mode=0o600)
