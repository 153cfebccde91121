"""Load what a decision needs: its projections as of one head, and the events of an earlier identical call.

Without snapshots this is one read with one query. With snapshots there are two reads up to the same head: from the
beginning for the earlier call and for projections that have no snapshot, then from the oldest snapshot for the others.
If the log does not confirm a snapshot, everything is read again from the beginning.

The search for the earlier call and the state of all projections are as of one head, so a rule never decides on the
events of its own twin: tests/decisions/test_once.py, tests/decisions/test_snapshots.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import msgspec

from ..aio import AsyncEventStore
from ..model import Query, SequencedEvent, query_of_items
from .once import Once
from .projections import Projection, fresh, query_of
from .snapshots import Awaited, Blocking, Cached, Snapshot, SnapshotLookup, UnsavedSnapshots, restore
from .steps import AnyStore, ReadEvents, Steps, check_store, run_steps, run_steps_async

P = TypeVar("P", bound=Projection)


class DecisionInput(msgspec.Struct):
    """What a decision is made on: its projections, folded up to `head`, or the events of an earlier call.

    `earlier` are the events that `once` has found; if there are any, the decision was taken before. `unsaved` are new
    snapshots, to be stored after the decision. `refold` returns the projections as they were before the rule ran.
    """

    projections: list[Any]
    head: int
    earlier: Sequence[SequencedEvent] = ()
    unsaved: UnsavedSnapshots = {}
    refold: Callable[[], list[Any]] = list


def load(
    templates: Sequence[Projection], boundary: Query | None, once: Once | None, cached: Cached[Any] | None
) -> Steps[DecisionInput]:
    """Look up `once`, read the boundary, and fold new projections with the scopes of the templates."""
    if boundary is None:
        earlier, head = (yield ReadEvents(once.query)) if once is not None else ((), 0)
        return DecisionInput([], head, earlier)
    if cached is not None and any(template.definition.snapshot_every is not None for template in templates):
        return (yield from _load_from_snapshots(templates, boundary, once, cached))
    events, head = yield ReadEvents(_with_once(once, boundary))
    if once is not None:
        earlier = once.among(events)
        if earlier:
            return DecisionInput([], head, earlier)  # the rule will not be called, so it needs no projections

    def fold() -> list[Any]:
        return _fold([fresh(template) for template in templates], events)

    return DecisionInput(fold(), head, refold=fold)


def load_newer(previous: DecisionInput, boundary: Query, once: Once | None) -> Steps[DecisionInput]:
    """After a conflict, read only the events since the last read and fold them on top of the previous state.

    The rule may have changed the projections that it was given. On the first conflict the previous state is therefore
    folded again from the events in memory; most decisions meet no conflict, so no copy was made for them. From then on
    the rule is given copies.
    """
    events, head = yield ReadEvents(_with_once(once, boundary), previous.head)
    if once is not None:
        earlier = once.among(events)
        if earlier:
            return DecisionInput([], head, earlier)
    untouched = _fold(previous.refold(), events)
    return DecisionInput(deepcopy(untouched), head, (), previous.unsaved, lambda: untouched)


def _with_once(once: Once | None, boundary: Query) -> Query:
    """The boundary, extended by the query item of `once`."""
    return boundary if once is None else query_of_items((*boundary.items, once.item))


def _fold(projections: list[Any], events: Sequence[SequencedEvent]) -> list[Any]:
    """Apply to each projection the events in its boundary."""
    if len(projections) == 1:
        _fold_one(projections[0], events)
    else:
        for event in events:
            for projection in projections:
                projection.apply(event)
    return projections


def _fold_one(projection: Projection, events: Sequence[SequencedEvent]) -> None:
    """Apply events that were read with the boundary of this projection alone.

    All of them are in the boundary, so their tags need not be compared; decoding the tags would cost more than
    everything else here. The exception is a boundary whose items also match events that no handler is for.
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


def _load_from_snapshots(
    templates: Sequence[Projection], boundary: Query, once: Once | None, cached: Cached[Any]
) -> Steps[DecisionInput]:
    loaded: list[SnapshotLookup] = []
    for template in templates:
        found = yield from cached.load(template)
        loaded.append(found)
    snapshots = [each.snapshot for each in loaded]
    folds, known = yield from _fold_forward(templates, boundary, once, snapshots)
    disproved = [each.disproved for each in folds]
    for each in folds:
        if each.disproved is not None:
            reason = f"the log has a different event at position {each.disproved.position}, or none"
            cached.ignore(each.projection, reason)
    if any(disproved):
        folds, known = yield from _fold_forward(templates, boundary, once, [None] * len(templates))
    if known.earlier:
        return known
    for each, wrong, found in zip(folds, disproved, loaded, strict=True):
        every = each.projection.definition.snapshot_every
        if every is not None and each.last is not None and (wrong or found.replace or each.count >= every):
            # Taken before the rule gets the projection, because the rule may change it.
            known.unsaved.update(cached.save(each.projection, each.last))
    return known


def _fold_forward(
    templates: Sequence[Projection], boundary: Query, once: Once | None, snapshots: Sequence[Snapshot | None]
) -> Steps[tuple[list[Fold], DecisionInput]]:
    """Fold each projection from its snapshot, or from the beginning if it has none; all up to the same head."""
    anchored = [template for template, snapshot in zip(templates, snapshots, strict=True) if snapshot is not None]
    others = [template for template, snapshot in zip(templates, snapshots, strict=True) if snapshot is None]
    head: int | None = None
    whole: Sequence[SequencedEvent] = ()
    newer: Sequence[SequencedEvent] = ()
    if others or once is not None:
        items = query_of(others).items if others else ()
        if once is not None:
            # The events of an earlier call may be older than every snapshot, so search from the beginning.
            items = (*items, once.item)
        whole, head = yield ReadEvents(query_of_items(items))
        earlier = once.among(whole) if once is not None else []
        if earlier:
            return [], DecisionInput([], head, earlier)
    if anchored:
        query = query_of(anchored) if others else boundary
        after = min(snapshot.position - 1 for snapshot in snapshots if snapshot is not None)
        newer, head = yield ReadEvents(query, after, head)
    assert head is not None

    def fold() -> list[Fold]:
        folds = []
        for template, snapshot in zip(templates, snapshots, strict=True):
            events, readers = (whole, others) if snapshot is None else (newer, anchored)
            folds.append(_fold_from(template, snapshot, events, is_alone=len(readers) == 1))
        return folds

    folds = fold()
    projections = [each.projection for each in folds]
    return folds, DecisionInput(projections, head, refold=lambda: [each.projection for each in fold()])


@dataclass(frozen=True, slots=True)
class Fold:
    """A projection that was folded from a snapshot or from the beginning.

    `disproved` is the snapshot if the log does not have the event that it was taken after; `count` and `last` are the
    number of events applied since, and the last of them.
    """

    projection: Projection
    disproved: Snapshot | None
    count: int
    last: SequencedEvent | None


def _fold_from(
    template: Projection, snapshot: Snapshot | None, events: Sequence[SequencedEvent], *, is_alone: bool
) -> Fold:
    """Fold a new projection. `is_alone`: the events were read for it alone, and not for other projections as well."""
    projection, disproved = fresh(template), None
    if snapshot is not None:
        restore(projection, snapshot)
        begin = bisect_right(events, snapshot.position, key=lambda event: event.position)
        disproved = None if any(map(snapshot.is_anchored_at, events[:begin])) else snapshot
        events = events[begin:]
    if is_alone and projection.definition.reads_exactly:
        _fold_one(projection, events)
    else:
        events = [event for event in events if projection.apply(event)]
    return Fold(projection, disproved, len(events), events[-1] if events else None)


@overload
def project(store: Blocking, projection: P, /) -> P: ...
@overload
def project(store: Awaited, projection: P, /) -> Coroutine[Any, Any, P]: ...
def project(store: Any, projection: Any, /) -> Any:
    """Read and fold a projection: returns a new one with the same scope and all its events applied.

    On an asyncio store the result must be awaited.
    """
    cached, store = (store, store.store) if isinstance(store, Cached) else (None, store)
    check_store(store, "project")
    steps = _project(projection, cached)
    return run_steps_async(store, steps) if isinstance(store, AsyncEventStore) else run_steps(store, steps)


def _project(template: Projection, cached: Cached[AnyStore] | None) -> Steps[Any]:
    known = yield from load([template], query_of([template]), None, cached)
    if cached is not None:
        yield from cached.keep(known.unsaved)
    return known.projections[0]
