"""Reading for a decision: its projections as of one head, and whether it was taken before.

One query for everything, one read. With snapshots the read begins at the oldest anchor instead
of at the beginning; where some projections have none, those are read first, and the rest up to the
same head. A snapshot that its anchor disproves costs another read, of the whole.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, overload

import msgspec

from ..aio import AsyncEventStore
from ..model import Query, SequencedEvent, query_of_items
from ..store import EventStore
from .boundary import query_of
from .idempotency import Once
from .projections import Projection, afresh
from .snapshots import Cached, Snapshot, Unkept, restore
from .steps import AnyStore, Course, Read, drive, drive_async

P = TypeVar("P", bound=Projection)


class Known(msgspec.Struct):
    """What a decision knows: its projections, up to which head, and the events of an earlier time.

    `searched` says whether an earlier time was looked for; where it was not, the append will. `unkept`
    are the snapshots that were taken, to be kept when the decision is taken.
    """

    projections: list[Any]
    head: int
    earlier: Sequence[SequencedEvent] = ()
    searched: bool = True
    unkept: Unkept = {}


def know(
    templates: Sequence[Projection],
    boundary: Query,
    once: Once | None,
    cached: Cached[Any] | None,
    search_first: bool = True,
) -> Course[Known]:
    """Read and fold fresh projections of the templates' scopes; `boundary` is the query for all of them.

    An earlier time is looked for in the same read. Where that begins at a snapshot it would not be found, so it takes
    another one; without `search_first` that is left to the append, or to the caller.
    """
    if cached is not None and any(template.definition.snapshot_every is not None for template in templates):
        return (yield from _know_from_snapshots(templates, boundary, once, cached, search_first))
    events, head = yield Read(boundary if once is None else query_of_items((*boundary.items, once.item)))
    if once is not None:
        earlier = once.among(events)
        if earlier:
            return Known([], head, earlier)  # the decision will not be taken, so its projections do not matter
    projections = [afresh(template) for template in templates]
    if len(projections) == 1:
        _fold_one(projections[0], events)
    else:
        for event in events:
            for projection in projections:
                projection.apply(event)
    return Known(projections, head)


def _fold_one(projection: Projection, events: Sequence[SequencedEvent]) -> None:
    """Apply the events of one projection's boundary.

    They were read for it, so they are in its boundary: there is no need to look at their tags, and that is good, since
    decoding them costs more than all the rest. Where an item finds more than is handled, there is.
    """
    definition = projection.definition
    if not definition.reads_exactly:
        for event in events:
            projection.apply(event)
        return
    by_type, every = definition.by_type, definition.every
    for event in events:
        bound = by_type.get(event.type, every)
        assert bound is not None
        bound.handle(projection, event)
        projection.position = event.position


def _know_from_snapshots(
    templates: Sequence[Projection], boundary: Query, once: Once | None, cached: Cached[Any], search_first: bool
) -> Course[Known]:
    snapshots: list[Snapshot | None] = []
    for template in templates:
        snapshot = yield from cached.load(template)
        snapshots.append(snapshot)
    folds, known = yield from _fold_forward(templates, boundary, once, snapshots, search_first)
    disproved = [each.snapshot is not None and not each.proven for each in folds]
    if any(disproved) and not known.earlier:
        folds, known = yield from _fold_forward(templates, boundary, once, [None] * len(templates), search_first)
    if known.earlier:
        return known
    for each, replace in zip(folds, disproved, strict=True):
        every = each.projection.definition.snapshot_every
        if every is not None and each.last is not None and (replace or each.count >= every):
            # Before the decision gets hold of the projection, so that the state is what was folded.
            known.unkept.update(cached.save(each.projection, each.last))
    return known


def _fold_forward(
    templates: Sequence[Projection],
    boundary: Query,
    once: Once | None,
    snapshots: Sequence[Snapshot | None],
    search_first: bool,
) -> Course[tuple[list[Fold], Known]]:
    """Fold what has a snapshot from there on, and the others from the beginning; all up to the same head."""
    folds = [Fold(afresh(template), snapshot) for template, snapshot in zip(templates, snapshots, strict=True)]
    anchored = [each for each in folds if each.snapshot is not None]
    others = [each for each in folds if each.snapshot is None]
    head: int | None = None
    searched = once is None
    if others or (once is not None and search_first):
        items = query_of([each.projection for each in others]).items if others else ()
        if once is not None:
            # An earlier time may lie before any snapshot, so it is searched for from the beginning.
            items, searched = (*items, once.item), True
        events, head = yield Read(query_of_items(items))
        earlier = once.among(events) if once is not None else []
        if earlier:
            return [], Known([], head, earlier)
        _take(others, events)
    if anchored:
        query = query_of([each.projection for each in anchored]) if others else boundary
        after = min(each.snapshot.position - 1 for each in anchored if each.snapshot is not None)
        events, reach = yield Read(query, after, head if others else None)
        _take(anchored, events)
        head = head if others else reach
    assert head is not None
    return folds, Known([each.projection for each in folds], head, (), searched)


def _take(folds: Sequence[Fold], events: Sequence[SequencedEvent]) -> None:
    """What was read for the projections."""
    if len(folds) == 1 and folds[0].projection.definition.reads_exactly:
        folds[0].take_all(events)
        return
    for event in events:
        for each in folds:
            each.take(event)


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

    def take_all(self, events: Sequence[SequencedEvent]) -> None:
        """Likewise all events of the boundary, and no others: so their tags need not be looked at."""
        if self.snapshot is not None and events and events[0].position <= self.snapshot.position:
            self.proven = self.snapshot.is_anchored_at(events[0])
            events = events[1:]
        _fold_one(self.projection, events)
        if events:
            self.count, self.last = len(events), events[-1]


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
    if cached is not None:
        yield from cached.keep(known.unkept)
    return known.projections[0]
