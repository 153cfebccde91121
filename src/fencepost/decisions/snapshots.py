"""Snapshots: a projection's state at a position, to fold forward from. A cache and nothing else.

A snapshot is found by the projection's definition and scope, and the definition's fingerprint
covers its code, constants, state and events: a changed class finds nothing and folds from the
beginning. What the class only uses it cannot see, and has a `version` for that. A snapshot
remembers its anchor, the last event folded into it, and the read that folds forward begins *with*
the anchor: if the log has another event there, or none, the snapshot is of another history and is
thrown away. So a snapshot can spare work, but is not believed when it is wrong.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from ..errors import InvalidInput, StoreError
from ..model import Event, Query, SequencedEvent
from .codecs import fields_of
from .definitions import SNAPSHOT_TYPE, Definition
from .errors import DefinitionError
from .projections import Projection, scope_of, state_of, values_of
from .steps import AnyStore, Append, Course, Elsewhere, Read
from .texts import text_of

Store = TypeVar("Store", bound=AnyStore)

# What `__name__` of a class may be, if it is part of its code.
BEHAVIOUR: Final = (FunctionType, property, staticmethod, classmethod)

# What may be an ancestor of a projection or an event, and changes with a version of its own.
LIBRARIES: Final = frozenset({"abc", "builtins", "enum", "msgspec", "pydantic", "typing"})

# How a field is found in stored data, and what it is where it is missing there.
OF_A_FIELD: Final = ("name", "encode_name", "alias", "validation_alias", "default", "default_factory")

log = logging.getLogger(__name__)


class Snapshot(msgspec.Struct, frozen=True):
    """The state after the event at `position`, which has the given digest."""

    position: int
    digest: bytes
    state: bytes

    def is_anchored_at(self, event: SequencedEvent) -> bool:
        return event.position == self.position and digest_of(event) == self.digest


# Snapshots that are yet to be stored, with the names of their projections, by key.
Unkept: TypeAlias = dict[str, tuple[str, Snapshot]]


class Cached(Generic[Store]):
    """A store, with snapshots of projections that are made with `snapshot_every`.

        store = Cached(fencepost.open("wallet.db"))
        withdraw(store, Balance("w1"), ...)

    Up to `limit` snapshots are held in memory, those used last. With `keep_in`, which may be the
    same store or better another one, they are also stored there and survive the process. That
    happens after the decision: in the same store they may be in its boundary.
    """

    def __init__(self, store: Store, *, limit: int = 10_000, keep_in: AnyStore | None = None) -> None:
        self.store = store
        self._limit = limit
        self._keep_in = keep_in
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Snapshot] = OrderedDict()

    def load(self, projection: Projection) -> Course[Snapshot | None]:
        """The snapshot of a projection with this definition and scope, if there is one."""
        if projection.definition.snapshot_every is None:
            return None
        place = _place_of(projection)
        with self._lock:
            snapshot = self._held.get(place)
            if snapshot is not None:
                self._held.move_to_end(place)
        if snapshot is None and self._keep_in is not None:
            key = key_of(projection)
            events, _ = yield Elsewhere(self._keep_in, Read(Query.of(types={SNAPSHOT_TYPE}, tags={key}), newest=True))
            if events:
                snapshot = msgspec.json.decode(events[0].data, type=Snapshot)
                self._hold(place, snapshot)
        return snapshot

    def save(self, projection: Projection, anchor: SequencedEvent) -> Unkept:
        """Remember the state, which must be that right after the anchor. Gives what is left to `keep`."""
        snapshot = Snapshot(anchor.position, digest_of(anchor), encode_state(projection))
        self._hold(_place_of(projection), snapshot)
        return {} if self._keep_in is None else {key_of(projection): (projection.definition.name, snapshot)}

    def keep(self, unkept: Unkept) -> Course[None]:
        """Store what was saved in `keep_in`."""
        for key, (name, snapshot) in unkept.items():
            try:
                event = Event(SNAPSHOT_TYPE, data=msgspec.json.encode(snapshot), tags={key})
                yield Elsewhere(self._keep_in, Append([event]))
            except (InvalidInput, StoreError) as error:
                # The decision does not depend on it, so it must not fail for it either.
                log.warning("the snapshot of %s was not stored: %s", name, error)

    def _hold(self, key: Hashable, snapshot: Snapshot) -> None:
        with self._lock:
            self._held[key] = snapshot
            self._held.move_to_end(key)
            while len(self._held) > self._limit:
                self._held.popitem(last=False)


def _place_of(projection: Projection) -> Hashable:
    """In memory a class is what it is, so it needs no fingerprint."""
    return type(projection), *_scope_of(projection)


def key_of(projection: Projection) -> str:
    """The tag under which snapshots of this definition and scope are found."""
    scope = msgspec.json.encode(_scope_of(projection))
    return "snapshot:" + hashlib.sha256(fingerprint(type(projection)) + scope).hexdigest()


def _scope_of(projection: Projection) -> tuple[str, ...]:
    """The tags, and the values that they were made of: events are found by the ones, but folded with the others."""
    return *scope_of(projection), *map(text_of, values_of(projection))


def digest_of(event: SequencedEvent) -> bytes:
    """Of everything that makes the event what it is."""
    whole = (event.position, event.type, sorted(event.tags), event.recorded_at, event.data)
    return hashlib.blake2b(msgspec.msgpack.encode(whole), digest_size=16).digest()


def encode_state(projection: Projection) -> bytes:
    """The state as JSON; refused unless exactly the same state comes back from it."""
    state = state_of(projection)
    definition = projection.definition
    undeclared = state.keys() - definition.state.keys()
    if undeclared:
        raise DefinitionError(f"{definition.name}: for snapshots, declare the fields {sorted(undeclared)} in the class")
    try:
        data = msgspec.json.encode(state)
        same = vars_of(_state_decoder(type(projection))(data)) == state
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{definition.name}: for snapshots, the state must go through JSON: {error}") from error
    if not same:
        problem = "the state does not come back from JSON as it was; annotate its fields with their exact types"
        raise DefinitionError(f"{definition.name}: for snapshots, {problem}")
    return data


def restore(projection: Projection, snapshot: Snapshot) -> None:
    projection.__dict__.update(vars_of(_state_decoder(type(projection))(snapshot.state)))
    projection.position = snapshot.position


def vars_of(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


@cache
def _state_decoder(cls: type[Projection]) -> Any:
    fields = list(cls.definition.state.items())
    return msgspec.json.Decoder(msgspec.defstruct("State", fields, forbid_unknown_fields=True)).decode


@cache
def fingerprint(cls: type[Projection]) -> bytes:
    """Of everything in the class, and in those of its events, that decides what its state is.

    What their code uses from elsewhere is not seen, be it a function, a constant of the module, or what is inside the
    type of a field: who changes that raises `version`.
    """
    digest = hashlib.sha256()
    for part in _parts(cls, cls.definition):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.digest()


def _parts(cls: type[Projection], definition: Definition) -> Iterator[str]:
    yield f"2 {sys.implementation.cache_tag} {definition.name} {definition.version}"
    yield f"{text_of(definition.scope)} {text_of(definition.state)}"
    yield from _members(cls)
    for handler in definition.handlers:
        yield f"{text_of(handler.method)} {text_of(handler.scope)}"
        for declaration in handler.declarations:
            yield f"{declaration.type} {declaration.version} {text_of(declaration.fields)}"
            yield text_of([[getattr(each, name, None) for name in OF_A_FIELD] for each in fields_of(declaration.cls)])
            yield from _members(declaration.cls)
            yield text_of(sorted(declaration.upgrades.items()))


def _members(cls: type) -> Iterator[str]:
    """What the class and its ancestors consist of, but for what Python and libraries note about them."""
    for ancestor in cls.__mro__:
        if ancestor is Projection or ancestor.__module__.partition(".")[0] in LIBRARIES:
            continue
        for name, value in sorted(vars(ancestor).items()):
            noted = name.startswith("__") and name.endswith("__") and not isinstance(value, BEHAVIOUR)
            if not noted and not isinstance(value, Definition):
                yield f"{name} {text_of(value)}"
            if isinstance(value, type) and value.__qualname__ == f"{ancestor.__qualname__}.{name}":
                yield from _members(value)
