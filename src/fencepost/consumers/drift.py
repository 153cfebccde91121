"""`verify`: whether a read model says what its events say, by folding them again and comparing every row.

The comparison is made at the position of the table's checkpoint, which is kept from moving while rows are read. So
a consumer that runs meanwhile causes no false alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .. import EventStore
from ..decisions import Projection
from .errors import CommandRefused
from .read_models import ReadModel, position_of_version, states_of

PROGRESS_EVERY: Final = 1_000


class Drift(msgspec.Struct, frozen=True):
    """The first row that differs from a fresh fold, in order of position. A missing row is None."""

    key: tuple[str, ...]
    position: int
    stored: dict[str, Any] | None
    expected: dict[str, Any] | None


def verify(
    model: ReadModel, store: EventStore, *, on_progress: Callable[[int, int], None] | None = None
) -> Drift | None:
    """Compare this version of the read model with a fresh fold; None if they agree.

    Raises `CommandRefused` if the version was never built.
    `on_progress` is called now and then with the position that was folded, and the position of the table.
    """
    target = model.reader()
    table = model.physical(model.version)
    with target.transaction() as transaction:
        if model.version not in states_of(target, transaction, model):
            raise CommandRefused(f"{model.table}: this version was never built, so there is nothing to verify")
        position = position_of_version(target, transaction, model, model.version, lock=True)
        _, rows = target.run(transaction, model.columns.select(table, 0))
    stored = dict(model.columns.projection_of(row) for row in rows)
    expected = folded(model, store, position, on_progress)
    differing = [key for key in stored.keys() | expected.keys() if stored.get(key) != expected.get(key)]
    if not differing:
        return None
    first = min(differing, key=lambda key: (_position_of(stored.get(key), expected.get(key)), key))
    return Drift(
        first,
        _position_of(stored.get(first), expected.get(first)),
        _values(model, first, stored.get(first)),
        _values(model, first, expected.get(first)),
    )


def folded(
    model: ReadModel, store: EventStore, up_to: int, on_progress: Callable[[int, int], None] | None = None
) -> dict[tuple[str, ...], Projection]:
    """What the rows are if the events up to the position are folded again."""
    folded: dict[tuple[str, ...], Projection] = {}
    if up_to == 0:
        return folded
    definition = model.projection.definition
    for number, event in enumerate(store.read(model.query, up_to=up_to)):
        if on_progress is not None and number % PROGRESS_EVERY == 0:
            on_progress(event.position, up_to)
        for scope in definition.scopes_of(event):
            key = tuple(scope.values())
            projection = folded.get(key)
            if projection is None:
                projection = folded[key] = model.columns.instance(key)
            projection.apply(event)
    return folded


def _position_of(stored: Projection | None, expected: Projection | None) -> int:
    return min(each.position for each in (stored, expected) if each is not None)


def _values(model: ReadModel, key: tuple[str, ...], projection: Projection | None) -> dict[str, Any] | None:
    if projection is None:
        return None
    return dict(zip(model.columns.names, model.columns.row_of(key, projection), strict=True))
