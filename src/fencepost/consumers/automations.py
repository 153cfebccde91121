"""`automation`: an event, the passing of time, or a row of a read model leads to a decision.

    @automation("unpaid", after=timedelta(days=3), cancelled_by=OrderPaid, by="order_id")
    def unpaid(event: OrderPlaced, store: Reaction) -> None:
        cancel(store, Order(event.order_id))

A timer is not stored. It follows from the event that begins it and from the declared delay, so it exists as soon as
the event does, and no crash can come between the two. What is stored is that a timer was handled: in the append of its
decision. docs/decisions/061-timers-follow-from-the-log.md has the reasons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from .. import AppendCondition, EventStore, Query, QueryItem, SequencedEvent
from ..decisions import DefinitionError, Projection, project
from ..decisions.inspection import Declaration, alternatives, declaration_of, location_of
from ..errors import InvalidInput
from .agenda import Agenda, Item
from .automation_worker import AutomationWorker, begun
from .control_state import Control, checkpoint_name, is_control
from .declaration import LEASE_S, Consumer, Failures, declares
from .read_models import ReadModel


class Timer(msgspec.Struct, frozen=True):
    """A timer that has not fired: the event that began it, and when it is due."""

    position: int
    type: str
    tags: tuple[str, ...]
    due: datetime


class Automation(Consumer):
    """A declared automation, which takes a decision with the `Reaction` that it gets. Made by `automation`.

    Without further options it reacts to each event at once. With `after`, it reacts when that time has passed since
    the event was recorded, and with `at` when the time has come that this function computes from the event. An event
    of `cancelled_by` that has the same tag `by` cancels the timers that began before it. With `rows`, it reacts to the
    rows of a read model that meet the condition `where`, whenever an event has changed them.
    """

    def __init__(
        self,
        name: str,
        *,
        after: timedelta | None = None,
        at: Callable[[Any], datetime | None] | None = None,
        cancelled_by: Any = None,
        by: str | None = None,
        rows: ReadModel | None = None,
        where: Callable[[Any], bool] | None = None,
        tags: Iterable[str] = (),
        lease_s: float = LEASE_S,
        start_after: int = 0,
        failures: Failures | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(name, tags=tags, lease_s=lease_s, start_after=start_after, failures=failures)
        if after is not None and at is not None:
            raise InvalidInput("after", "give either after or at, not both")
        if after is not None and after < timedelta(0):
            raise InvalidInput("after", f"a delay of at least 0 is needed, not {after}")
        if rows is None and where is not None:
            raise InvalidInput("where", "it is a condition for rows; give rows as well")
        if rows is not None and (after is not None or at is not None or cancelled_by is not None):
            raise InvalidInput("rows", "rows have no delay; let the decision store an event, and begin the timer there")
        if (cancelled_by is None) != (by is None):
            raise InvalidInput("by", "give cancelled_by and by together; by is the name of a tag that both events have")
        if cancelled_by is not None and after is None and at is None:
            raise InvalidInput("cancelled_by", "only a timer can be cancelled; give after or at")
        self.after = after
        self.at = at
        self.by = by
        self.rows = rows
        self.where = where
        self.clock = clock
        self.cancelling = _declared(cancelled_by, by, "cancelled_by")
        self._row_handler: Callable[..., Any] | None = None
        if after is not None or at is not None or rows is not None:
            self.worker = AutomationWorker

    def _add(self, function: Callable[..., Any], visible: dict[str, Any]) -> None:
        if self.rows is None:
            super()._add(function, visible)
            _check_tags([each for handler in self.handlers.all() for each in handler.declarations], self.by, self.name)
            return
        if self._row_handler is not None:
            raise DefinitionError(f"automation {self.name!r}: rows have one handler")
        if not 1 <= len(inspect.signature(function).parameters) <= 2:
            raise DefinitionError(f"{location_of(function)}: a handler of rows takes the row and the Reaction")
        self._first = self._row_handler = function

    @property
    def query(self) -> Query:
        """Every event that begins a timer, or that changes a row."""
        return super().query if self.rows is None else self.rows.query

    @property
    def followed(self) -> Query:
        """What the agenda follows from: these events, and those that cancel timers."""
        return self.query | Query.of(types=self.cancelling) if self.cancelling else self.query

    def now(self) -> float:
        now = datetime.now(timezone.utc) if self.clock is None else self.clock()
        return now.timestamp()

    def due(self, event: SequencedEvent) -> float | None:
        """When the event is due; None if it begins no timer. Raises what `at` raises."""
        if self.after is not None:
            return (event.recorded_at + self.after).timestamp()
        if self.at is None:
            return 0.0
        found = self.handlers.of(event.type)
        assert found is not None, "only events that have a handler are asked for"
        declaration = next((each for each in found.declarations if each.type == event.type), None)
        moment = self.at(event if declaration is None else declaration.decode(event))
        if moment is None:
            return None
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise InvalidInput("at", f"a datetime with a time zone is needed, not {moment!r}")
        return moment.timestamp()

    def keys_of(self, event: SequencedEvent) -> list[str]:
        """The tags by which an event cancels the timers of an earlier one."""
        return [] if self.by is None else sorted(each for each in event.tags if each.startswith(f"{self.by}:"))

    def not_cancelled(self, event: SequencedEvent) -> AppendCondition | None:
        """The condition that no event has cancelled the timer that this event began."""
        keys = self.keys_of(event) if self.cancelling else []
        if not keys:
            return None
        items = [QueryItem(types=self.cancelling, tags={key}) for key in keys]
        return AppendCondition(Query(items=items), after=event.position)

    def follow(self, agenda: Agenda, event: SequencedEvent) -> None:
        """Change the agenda as the event says."""
        if event.type in self.cancelling:
            agenda.cancel(self.keys_of(event))
        for item, keys in self.items_of(event):
            if self.rows is not None:
                agenda.cancel(keys)  # an older version of the row, which is gone
            agenda.add(item, keys)

    def items_of(self, event: SequencedEvent) -> Iterator[tuple[Item, list[str]]]:
        """What the event gives the automation to do, with the keys under which that can be cancelled."""
        if self.rows is not None:
            found = [tuple(scope.values()) for scope in self.rows.projection.definition.scopes_of(event)]
            for row in found:
                yield Item(0.0, event.position, row, recorded=len(found) > 1), [msgspec.json.encode(row).decode()]
        elif self.handlers.of(event.type) is not None and self._tags <= event.tags:
            try:
                due = self.due(event)
            except Exception:
                due = 0.0  # it is raised again when the item is handled, where failures are counted
            if due is not None:
                yield Item(due, event.position), self.keys_of(event)

    def handle(self, event: SequencedEvent, store: Any) -> Any:
        """Call the handler of an event that is due."""
        self.due(event)
        assert self.handlers.of(event.type) is not None, "only events that have a handler are on the agenda"
        return self.handlers[event.type](event, store)

    def handle_row(self, row: Projection, store: Any) -> Any:
        """Call the handler of a row, if the row meets the condition."""
        assert self._row_handler is not None, "an automation without a handler is not run"
        if self.where is not None and not self.where(row):
            return None
        return self._row_handler(*(row, store)[: len(inspect.signature(self._row_handler).parameters)])


def _declared(classes: Any, by: str | None, field: str) -> frozenset[str]:
    """The stored types of one event class, of a union or of several classes."""
    if classes is None:
        return frozenset()
    given = classes if isinstance(classes, (tuple, list, set, frozenset)) else alternatives(classes)
    declarations: list[Declaration[Any]] = [declaration_of(each) for each in given]
    _check_tags(declarations, by, field)
    return frozenset(each.type for each in declarations)


def _check_tags(declarations: Iterable[Declaration[Any]], by: str | None, where: str) -> None:
    for declaration in declarations:
        if by is not None and by not in declaration.tag_names:
            raise DefinitionError(f"{where}: {declaration.type} has no tag {by!r}, so it could never be matched")


automation = declares(Automation)


def timers(store: EventStore, chosen: Automation) -> list[Timer]:
    """The timers of an automation that have not fired, the first due first. Read from the log."""
    if chosen.after is None and chosen.at is None:
        raise InvalidInput("chosen", f"automation {chosen.name!r} has neither after nor at, so it has no timers")
    control = project(store, Control(chosen.name))
    checkpoint = store.checkpoint(checkpoint_name(chosen.name, control.generation))
    position = max(checkpoint, control.start if control.generation else chosen.start_after)
    agenda = begun(store, chosen.name, position, control.generation)
    events: dict[int, SequencedEvent] = {}
    for event in store.read(chosen.followed, after=position):
        if not is_control(event.type):
            chosen.follow(agenda, event)
            events[event.position] = event
    found = [(item, events[item.position]) for item in agenda.items()]
    return [
        Timer(item.position, event.type, tuple(sorted(event.tags)), datetime.fromtimestamp(item.due, timezone.utc))
        for item, event in found
    ]
