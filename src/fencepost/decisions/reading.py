"""Reading for a decision: its projections as of one head, and whether it was taken before.

One query for everything, one read. With snapshots the read begins at the oldest anchor instead
of at the beginning; a snapshot that its anchor disproves costs another read, of the whole.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, overload

import msgspec

from ..aio import AsyncEventStore
from ..model import Query, SequencedEvent
from ..store import EventStore
from .boundary import query_of
from .idempotency import Once
from .projections import Projection, afresh
from .snapshots import Cached, Snapshot, restore
from .steps import AnyStore, Course, Read, drive, drive_async

P = TypeVar("P", bound=Projection)


class Known(msgspec.Struct):
    """What a decision knows: its projections, up to which head, and the events of an earlier time."""

    projections: list[Any]
    head: int
    earlier: Sequence[SequencedEvent] = ()


def know(
    templates: Sequence[Projection], boundary: Query, once: Once | None, cached: Cached[Any] | None
) -> Course[Known]:
    """Read and fold fresh projections of the templates' scopes; `boundary` is the query for all of them."""
    if cached is not None and any(template.definition.snapshot_every is not None for template in templates):
        return (yield from _know_from_snapshots(templates, boundary, once, cached))
    events, head = yield Read(boundary if once is None else Query((*boundary.items, once.item)))
    projections = [afresh(template) for template in templates]
    if len(projections) == 1:
        return Known(projections, head, _fold_one(projections[0], events, once))
    for event in events:
        for projection in projections:
            projection.apply(event)
    return Known(projections, head, [event for event in events if once.found(event)] if once is not None else ())


def _fold_one(projection: Projection, events: Sequence[SequencedEvent], once: Once | None) -> list[SequencedEvent]:
    """Apply the events of one projection's boundary, and return those that `once` asked for.

    What `once` did not ask for is in the boundary, or it would not have been read. So tags are looked at
    only where `once` might have asked, and that is good, since decoding them costs more than all the rest.
    """
    definition = projection.definition
    by_type, every = definition.by_type, definition.every
    sought = None if once is None or once.declaration is None else once.declaration.type
    earlier = []
    for event in events:
        if once is not None and (sought is None or event.type == sought) and once.found(event):
            earlier.append(event)  # the decision will not be taken, so its projection does not matter any more
            continue
        bound = by_type.get(event.type, every)
        assert bound is not None
        bound.handle(projection, event)
        projection.position = event.position
    return earlier


def _know_from_snapshots(
    templates: Sequence[Projection], boundary: Query, once: Once | None, cached: Cached[Any]
) -> Course[Known]:
    snapshots: list[Snapshot | None] = []
    for template in templates:
        snapshot = yield from cached.load(template)
        snapshots.append(snapshot)
    folds, known = yield from _fold_forward(templates, boundary, once, snapshots)
    disproved = [each.snapshot is not None and not each.proven for each in folds]
    if any(disproved) and not known.earlier:
        folds, known = yield from _fold_forward(templates, boundary, once, [None] * len(templates))
    for each, replace in zip(folds, disproved, strict=True):
        every = each.projection.definition.snapshot_every
        if every is not None and each.last is not None and (replace or each.count >= every):
            # Before the decision gets hold of the projection, so that the state is what was folded.
            yield from cached.save(each.projection, each.last)
    return known


def _fold_forward(
    templates: Sequence[Projection], boundary: Query, once: Once | None, snapshots: Sequence[Snapshot | None]
) -> Course[tuple[list[Fold], Known]]:
    after = min(0 if snapshot is None else snapshot.position - 1 for snapshot in snapshots)
    query = boundary
    if once is not None and after == 0:
        query = Query((*boundary.items, once.item))
    elif once is not None:
        # An earlier time may lie before any snapshot, so it is searched for by itself. Should it
        # come between this read and the next, the append will tell.
        earlier, head = yield Read(once.query)
        if earlier:
            return [], Known([], head, earlier)
    events, head = yield Read(query, after)
    folds = [Fold(afresh(template), snapshot) for template, snapshot in zip(templates, snapshots, strict=True)]
    for event in events:
        for each in folds:
            each.take(event)
    found = [event for event in events if once.found(event)] if once is not None else []
    return folds, Known([each.projection for each in folds], head, found)


class Fold:
    """One projection on its way forward from a snapshot, or from the beginning."""

    __slots__ = ("count", "last", "projection", "proven", "snapshot")

    def __init__(self, projection: Projection, snapshot: Snapshot | None) -> None:
        self.projection = projection
        self.snapshot = snapshot
        self.proven = False
        self.count = 0
        self.last: SequencedEvent | None = None
        if snapshot is not None:
            restore(projection, snapshot)

    def take(self, event: SequencedEvent) -> None:
        if self.snapshot is not None and event.position <= self.snapshot.position:
            self.proven = self.proven or self.snapshot.is_anchored_at(event)
        elif self.projection.apply(event):
            self.count += 1
            self.last = event


@overload
def project(store: EventStore | Cached[EventStore], projection: P, /) -> P: ...
@overload
def project(store: AsyncEventStore | Cached[AsyncEventStore], projection: P, /) -> Coroutine[Any, Any, P]: ...
def project(store: Any, projection: Any, /) -> Any:
    """The projection as of now: a fresh one of the same scope, with all its events applied.

    On the awaitable store, to be awaited.
    """
    cached, store = (store, store.store) if isinstance(store, Cached) else (None, store)
    course = _project(projection, cached)
    return drive_async(store, course) if isinstance(store, AsyncEventStore) else drive(store, course)


def _project(template: Projection, cached: Cached[AnyStore] | None) -> Course[Any]:
    known = yield from know([template], query_of([template]), None, cached)
    return known.projections[0]
