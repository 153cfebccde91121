"""Snapshots: the state of a projection at a position, from which later folds start. They are only a cache.

The key of a snapshot is the fingerprint of the projection class (see `fingerprint.py`) and its scope, so a changed
class ignores old snapshots and folds from the beginning. The state comes back with the same types (see `state.py`).

A snapshot is verified twice before it is used. First, a stored snapshot has a seal, a digest of its content, its key
and the first event of its log; a wrong seal means that it is damaged or belongs to another store. Second, a snapshot
holds a digest of the last event folded into it, its anchor. The next read starts with that event; if the log has
another event there, or none, the snapshot belongs to another history. A snapshot that fails is ignored, counted,
logged and replaced: tests/decisions/test_snapshots.py.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from ..aio import AsyncEventStore
from ..errors import InvalidInput, StoreError
from ..model import Event, Query, SequencedEvent
from ..store import EventStore
from .errors import DefinitionError
from .fingerprint import fingerprint
from .projections import SNAPSHOT_TYPE, Projection, scope_of, state_of, values_of
from .steps import AnyStore, AppendEvents, OnStore, ReadEvents, Steps, check_store

Store = TypeVar("Store", bound=AnyStore)

log = logging.getLogger(__name__)


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state after the event at `position`; `digest` is the digest of that event."""

    position: int
    digest: bytes
    state: bytes

    def is_anchored_at(self, event: SequencedEvent) -> bool:
        return event.position == self.position and digest_of(event) == self.digest

    def seal(self, key: bytes, origin: bytes) -> bytes:
        """A digest of the snapshot, its key and the origin of its log. It detects damage; it is not a signature."""
        whole = msgspec.json.encode((key, origin, self.position, self.digest, self.state))
        return hashlib.blake2b(whole, digest_size=32).digest()


class StoredSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A snapshot as it is stored in `keep_in`."""

    snapshot: Snapshot
    seal: bytes


class SnapshotLookup(msgspec.Struct, frozen=True):
    """The intact snapshot that was found, if any, and whether a damaged one must be replaced."""

    snapshot: Snapshot | None = None
    replace: bool = False


# Snapshots that must still be stored in `keep_in`: key to name of the projection and snapshot.
UnsavedSnapshots: TypeAlias = dict[bytes, tuple[str, Snapshot]]


class Cached(Generic[Store]):
    """A store with snapshots of the projections that have `snapshot_every`.

        store = Cached(fencepost.open("wallet.db"))
        withdraw(store, Balance("w1"), ...)

    The `limit` most recently used snapshots are held in memory. If `keep_in` is a store, snapshots are also stored
    there and survive the process; another store than the decision's own is better. They are stored after the decision,
    because in the same store they may match its boundary.

    `ignored` counts snapshots that were found but not used, because they were damaged or belong to another store or
    history. Each is also logged as a warning by the logger `fencepost.decisions.snapshots`.
    """

    def __init__(self, store: Store, *, limit: int = 10_000, keep_in: AnyStore | None = None) -> None:
        check_store(store, "Cached")
        self.store = store
        self.ignored = 0
        self._limit = limit
        self._keep_in = keep_in
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Snapshot] = OrderedDict()
        self._origin: tuple[Store, bytes] | None = None

    def load(self, projection: Projection) -> Steps[SnapshotLookup]:
        """Look up the snapshot of a projection with this definition and scope."""
        if projection.definition.snapshot_every is None:
            return SnapshotLookup()
        key = _memory_key(projection)
        with self._lock:
            snapshot = self._held.get(key)
            if snapshot is not None:
                self._held.move_to_end(key)
        if snapshot is not None or self._keep_in is None:
            return SnapshotLookup(snapshot)
        try:
            snapshot = yield from self._load_kept(projection)
        except (StoreError, ValueError) as error:
            self.ignore(projection, str(error))
            return SnapshotLookup(replace=not isinstance(error, StoreError))
        if snapshot is not None:
            self._hold(key, snapshot)
        return SnapshotLookup(snapshot)

    def ignore(self, projection: Projection, reason: str) -> None:
        """Count and log that the snapshot of the projection is not used, and remove it from memory."""
        with self._lock:
            self.ignored += 1
            self._held.pop(_memory_key(projection), None)
        log.warning("ignored the snapshot of %s %s: %s", projection.definition.name, scope_of(projection), reason)

    def save(self, projection: Projection, anchor: SequencedEvent) -> UnsavedSnapshots:
        """Hold a snapshot of the state right after the anchor. Returns what `keep` must store."""
        snapshot = Snapshot(anchor.position, digest_of(anchor), encode_state(projection))
        self._hold(_memory_key(projection), snapshot)
        return {} if self._keep_in is None else {key_of(projection): (projection.definition.name, snapshot)}

    def keep(self, unsaved: UnsavedSnapshots) -> Steps[None]:
        """Store the snapshots in `keep_in`. A failure is logged and does not fail the decision."""
        for key, (name, snapshot) in unsaved.items():
            try:
                origin = yield from self._origin_of_log()
                kept = StoredSnapshot(snapshot, snapshot.seal(key, origin))
                event = Event(SNAPSHOT_TYPE, data=msgspec.json.encode(kept), tags={tag_under(key, origin)})
                yield OnStore(self._keep_in, AppendEvents([event]))
            except (InvalidInput, StoreError) as error:
                log.warning("could not store the snapshot of %s: %s", name, error)

    def _load_kept(self, projection: Projection) -> Steps[Snapshot | None]:
        """The newest snapshot in `keep_in`. Raises ValueError if it is damaged or not for this key and log."""
        key = key_of(projection)
        origin = yield from self._origin_of_log()
        query = Query.of(types={SNAPSHOT_TYPE}, tags={tag_under(key, origin)})
        events, _ = yield OnStore(self._keep_in, ReadEvents(query, limit=1, backwards=True))
        if not events:
            return None
        try:
            kept = msgspec.json.decode(events[0].data, type=StoredSnapshot)
            if kept.seal != kept.snapshot.seal(key, origin):
                raise ValueError("its seal is wrong")
            projection.definition.codec.decode(kept.snapshot.state)  # fails if a class has changed its fields
        except Exception as error:
            where = f"event {events[0].position} in keep_in"
            raise ValueError(f"{where} is damaged, or does not fit the class: {error}") from error
        return kept.snapshot

    def _origin_of_log(self) -> Steps[bytes]:
        """Identifies the log: the digest of its first event, which never changes; b"" if the log is empty."""
        if self._origin is not None and self._origin[0] is self.store:
            return self._origin[1]
        events, _ = yield ReadEvents(Query.all(), limit=1)
        if not events:
            return b""
        self._origin = (self.store, digest_of(events[0]))
        return self._origin[1]

    def _hold(self, key: Hashable, snapshot: Snapshot) -> None:
        with self._lock:
            self._held[key] = snapshot
            self._held.move_to_end(key)
            while len(self._held) > self._limit:
                self._held.popitem(last=False)


# A store, with snapshots or without.
Blocking: TypeAlias = EventStore | Cached[EventStore]
Awaited: TypeAlias = AsyncEventStore | Cached[AsyncEventStore]


def _memory_key(projection: Projection) -> Hashable:
    """The key in memory. The class itself takes the place of its fingerprint."""
    return type(projection), *_scope_of(projection)


def key_of(projection: Projection) -> bytes:
    """The key of stored snapshots of this definition and scope."""
    scope = msgspec.json.encode(_scope_of(projection))
    return hashlib.sha256(fingerprint(type(projection)) + scope).digest()


def tag_under(key: bytes, origin: bytes) -> str:
    """The tag of a stored snapshot. It includes the origin, so one store can keep the snapshots of several."""
    return "snapshot:" + hashlib.sha256(key + origin).hexdigest()


def _scope_of(projection: Projection) -> tuple[str, ...]:
    """The tags and the arguments they came from. Tags select the events, but handlers see the arguments."""
    return *scope_of(projection), *(f"{type(each).__qualname__} {each!r}" for each in values_of(projection))


def digest_of(event: SequencedEvent) -> bytes:
    """A digest of the whole event: position, type, tags, time, data, id and metadata."""
    id, metadata = event.stored_id, sorted(event.metadata.items())
    whole = (event.position, event.type, sorted(event.tags), event.recorded_at, event.data, id, metadata)
    return hashlib.blake2b(msgspec.msgpack.encode(whole), digest_size=16).digest()


def encode_state(projection: Projection) -> bytes:
    """The state as bytes. Raises `DefinitionError` for a state that cannot be restored with the same types."""
    state = state_of(projection)
    definition = projection.definition
    undeclared = state.keys() - definition.state.keys()
    if undeclared:
        raise DefinitionError(
            f"{definition.name}: snapshots need the fields {sorted(undeclared)} to be declared in the class"
        )
    return definition.codec.encode(state)


def restore(projection: Projection, snapshot: Snapshot) -> None:
    """Set the state of a new projection to that of the snapshot."""
    projection.__dict__.update(projection.definition.codec.decode(snapshot.state))
    projection.position = snapshot.position
