"""`EventStore`: everything that a user sees, done once for all engines.

Checking what goes in, gathering concurrent appends into batches, turning verdicts into results
and errors, readings that say how far they reach, and subscriptions. What is left to an engine is
in `engine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from .commit import Append, Behind, Conflicting, GroupCommit, Overlapping, Verdict
from .engine import Beginning, Recording, Restoring
from .engine import Engine as Engine
from .errors import (
    CheckpointBehind,
    ConditionFailed,
    IdsOverlap,
    InvalidInput,
    ReadingNotFinished,
    StoreClosed,
    StoreCorrupt,
    StoreError,
)
from .model import (
    MAX_APPEND_BYTES,
    MAX_CONDITIONS,
    MAX_DATA_BYTES,
    MAX_EVENTS,
    MAX_POSITION,
    MAX_TAGS,
    AppendCondition,
    Event,
    Placed,
    Query,
    RecordedAppend,
    SequencedEvent,
    checked_all,
    checked_id,
    checked_name,
    checked_position,
    checked_tags,
    checked_type,
)
from .subscription import Feed, Follower, Subscription

PAGE_EVENTS: Final = 1_024


class EventStore:
    """A DCB event store over any engine. Thread-safe; `fencepost.open` makes one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.group = GroupCommit(engine.commit) if engine.group_commit else None
        self._begin = engine.begin if isinstance(engine, Beginning) else self._head_and_scan
        self._follower = Follower(engine)
        self._process = os.getpid()
        self._closed = False

    def append(
        self,
        events: Iterable[Event],
        condition: AppendCondition | Iterable[AppendCondition] | None = None,
        *,
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
    ) -> Placed:
        """Store the events, all or none, durably when this returns.

        Raises `ConditionFailed` if an event that matches a condition was stored after the
        condition's `after`. If `unless` matches any stored event, or if events with the same ids
        are stored already, nothing is written and the result says `already`.
        `checkpoint=(name, position)` is stored in the same transaction and must grow.
        """
        append = checked_append(events, condition, unless, checkpoint)
        self.check_open()
        verdict = self.group.append(append) if self.group is not None else self._engine.commit([append])[0]
        return self.result(verdict)

    def read(
        self,
        query: Query | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> Reading:
        """The matching events with after < position <= upto, of one consistent state of the store."""
        query = checked_range(query, after, upto, limit)
        self.check_open()
        reach, pages = self._begin(query, after=after, upto=upto, limit=limit, backwards=backwards)
        return Reading(pages, reach, limit, backwards)

    def head(self) -> int:
        """The position of the last event, 0 when there is none."""
        self.check_open()
        return self._engine.head()

    def subscribe(self, query: Query | None = None, *, after: int = 0, timeout: float | None = None) -> Subscription:
        """The matching events after `after`: those that are stored, then each new one as it comes.

        The iteration waits for new events until `stop()` is called on the subscription, the store
        is closed, or nothing has come for `timeout` seconds.
        """
        query = checked_range(query, after, None, None)
        checked_timeout(timeout)
        return Subscription(lambda on_ready: self.feed(query, after, on_ready), after, timeout)

    def checkpoint(self, name: str) -> int:
        """Where the checkpoint is, 0 if it never was set; `append(..., checkpoint=...)` moves it."""
        checked_name(name, "checkpoint")
        self.check_open()
        return self._engine.checkpoint(name)

    def recorded(self, *, after: int = 0, upto: int | None = None) -> Iterator[RecordedAppend]:
        """What appends were conditional on: those recorded with after < last <= upto, in order.

        Only appends through stores that were opened with `record_conditions=True` are recorded.
        """
        return chain.from_iterable(self.recorded_pages(after, upto))

    def restore(self, events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend] = ()) -> None:
        """Take over events of another store as they are, positions, times and ids included; all or none.

        They follow on this store's head, and so do the recorded appends, each of which ends with one of
        the events. For a restore: whoever appends has their events judged, and these are not.
        """
        checked = checked_restore(events, appends)
        self.check_open()
        if not isinstance(self._engine, Restoring):
            raise StoreError("this engine gives positions of its own, so it cannot take over another store's events")
        if checked[0]:
            self._engine.restore(*checked)

    def close(self) -> None:
        """End all subscriptions and release the storage. Closing twice does no harm."""
        if not self._closed and os.getpid() == self._process:
            self._closed = True
            self._follower.close()
            self._engine.close()

    def __enter__(self) -> EventStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # What follows is for the awaitable twin in aio.py as well, which waits in another way.

    def feed(self, query: Query, after: int, on_ready: Callable[[], None]) -> Feed:
        self.check_open()
        return Feed(self._engine, self._follower, query, after, on_ready)

    def recorded_pages(self, after: int, upto: int | None) -> Iterator[Sequence[RecordedAppend]]:
        checked_range(None, after, upto, None)
        self.check_open()
        if not isinstance(self._engine, Recording):
            raise StoreError("this engine does not record the conditions of appends")
        head = self._engine.head()
        return self._engine.recorded(after=after, upto=head if upto is None else min(upto, head))

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if os.getpid() != self._process:
            raise StoreClosed("the store was opened before this process was forked: open it again in the child")

    def result(self, verdict: Verdict) -> Placed:
        if isinstance(verdict, Placed):
            return verdict
        if isinstance(verdict, Conflicting):
            raise ConditionFailed(verdict.condition, verdict.conflict or self._event_at(verdict.position))
        if isinstance(verdict, Overlapping):
            raise IdsOverlap(verdict.stored, verdict.position, verdict.missing)
        assert isinstance(verdict, Behind)
        raise CheckpointBehind(verdict.name, verdict.position, verdict.current)

    def _head_and_scan(
        self, query: Query, *, after: int, upto: int | None, limit: int | None, backwards: bool
    ) -> tuple[int, Iterator[Sequence[SequencedEvent]]]:
        """As `Beginning.begin`, for an engine that has no better way."""
        head = self._engine.head()
        reach = head if upto is None else min(upto, head)
        return reach, self._engine.scan(query, after=after, upto=reach, limit=limit, backwards=backwards)

    def _event_at(self, position: int) -> SequencedEvent:
        for page in self._engine.scan(Query.all(), after=position - 1, upto=position):
            return page[0]
        raise StoreCorrupt(f"the event at position {position} is in the index but not in the log")


class Reading:
    """The events that a read found, in order, streamed; and how far it reaches.

    A reading is iterated once. `head` is what to give an `AppendCondition` as `after`.
    """

    def __init__(
        self, pages: Iterator[Sequence[SequencedEvent]], upto: int, limit: int | None, backwards: bool
    ) -> None:
        self._head: int | None = upto if limit is None else None
        if limit is None:
            self._events: Iterator[SequencedEvent] = chain.from_iterable(pages)
        else:
            self._events = self._limited(pages, upto, limit, backwards)

    @property
    def head(self) -> int:
        """Up to where the reading is complete.

        Without a limit that is the head of the store, or `upto`, and known at once. With one it
        is known when the iteration has ended: the last position delivered if the limit cut a
        forward reading short, else the head.
        """
        if self._head is None:
            raise ReadingNotFinished("head: with a limit it is known when the reading has been iterated to its end")
        return self._head

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self._events

    def __next__(self) -> SequencedEvent:
        return next(self._events)

    def page(self) -> list[SequencedEvent]:
        """The next events, as many as are cheap to take at once; none at the end."""
        return list(islice(self._events, PAGE_EVENTS))

    def _limited(
        self, pages: Iterator[Sequence[SequencedEvent]], upto: int, limit: int, backwards: bool
    ) -> Iterator[SequencedEvent]:
        delivered, last = 0, upto
        for page in pages:
            for event in page:
                delivered, last = delivered + 1, event.position
                if delivered == limit and not backwards:
                    # Known before the last event is handed out: who takes no more has it all the same.
                    self._head = last
                yield event
        if self._head is None:
            self._head = upto


def checked_append(
    events: Iterable[Event],
    condition: AppendCondition | Iterable[AppendCondition] | None,
    unless: Query | None,
    checkpoint: tuple[str, int] | None,
) -> Append:
    """The append as one immutable value, or `InvalidInput` naming what is wrong with it."""
    return Append(
        _checked_events(events, checkpoint is not None),
        _checked_conditions(condition),
        _checked_unless(unless),
        None if checkpoint is None else _checked_checkpoint(checkpoint),
    )


def checked_restore(
    events: Iterable[SequencedEvent], appends: Iterable[RecordedAppend]
) -> tuple[tuple[SequencedEvent, ...], tuple[RecordedAppend, ...]]:
    """What another store says that it has stored, held to what every store promises."""
    taken = checked_all(events, "events", SequencedEvent)
    if len(taken) > MAX_EVENTS:
        raise InvalidInput("events", f"{len(taken)} events, the limit is {MAX_EVENTS}")
    size = sum(len(event.data) for event in taken)
    if size > MAX_APPEND_BYTES:
        raise InvalidInput("events", f"{size} bytes of data at once, the limit is {MAX_APPEND_BYTES}")
    previous, known, ids = 0, Known(), set[bytes]()
    for index, event in enumerate(taken):
        if not known.passes(event):
            try:
                known.check(event)
            except InvalidInput as error:
                raise InvalidInput(f"events[{index}].{error.field}", error.problem) from None
        position, id = event.position, event.stored_id
        if position <= previous:
            raise InvalidInput(f"events[{index}].position", f"{position} does not follow on {previous}")
        previous = position
        if id in ids:
            raise InvalidInput(f"events[{index}].id", f"{event.id} is there twice")
        if id is not None:
            ids.add(id)
    return taken, _checked_records(appends, {event.position for event in taken})


class Known:
    """Strings that were found valid before. Types and tags repeat, and a restore has millions of them to check."""

    def __init__(self) -> None:
        self._types: set[str] = set()
        self._tags: set[str] = set()

    def passes(self, event: SequencedEvent) -> bool:
        """Whether a glance shows that it is sound; most are, with a type and tags that came before and no metadata."""
        tags, data, id = event._tags, event.data, event._id
        return (
            type(event.position) is int
            and 0 <= event.position <= MAX_POSITION
            and event.type in self._types
            and type(tags) is frozenset
            and len(tags) <= MAX_TAGS
            and tags <= self._tags
            and type(data) is bytes
            and len(data) <= MAX_DATA_BYTES
            and type(event._recorded_at) is int
            and (id is None or (type(id) is bytes and len(id) == 16))
            and not event._metadata
        )

    def check(self, event: SequencedEvent) -> None:
        """Refuse what no append could have stored."""
        checked_position(event.position, "position")
        if event.type not in self._types:
            self._types.add(checked_type(event.type, "type"))
        tags = event.tags
        if len(tags) > MAX_TAGS or not tags <= self._tags:
            self._tags |= checked_tags(tags, "tags")
        if not isinstance(event.data, bytes) or len(event.data) > MAX_DATA_BYTES or event._metadata:
            event.event  # noqa: B018
        if event._id is not None and not (isinstance(event._id, bytes) and len(event._id) == 16):
            checked_id(event._id)
        if not isinstance(event._recorded_at, int) and event.recorded_at.tzinfo is None:
            raise InvalidInput("recorded_at", "a time zone is needed")


def _checked_records(appends: Iterable[RecordedAppend], ends: Container[int]) -> tuple[RecordedAppend, ...]:
    taken = checked_all(appends, "appends", RecordedAppend)
    previous = 0
    for index, append in enumerate(taken):
        if not previous < append.first <= append.last:
            problem = f"{append.first} to {append.last} does not follow on {previous}"
            raise InvalidInput(f"appends[{index}]", problem)
        if append.last not in ends:
            raise InvalidInput(f"appends[{index}]", f"no event is given for its last position, {append.last}")
        try:
            append.conditions, append.unless  # noqa: B018
        except InvalidInput as error:
            raise InvalidInput(f"appends[{index}].{error.field}", error.problem) from None
        previous = append.last
    return taken


def checked_range(query: Query | None, after: int, upto: int | None, limit: int | None) -> Query:
    if query is None:
        query = Query.all()
    elif not isinstance(query, Query):
        raise InvalidInput("query", f"a Query is needed, not {type(query).__name__}")
    checked_position(after, "after")
    if upto is not None:
        checked_position(upto, "upto")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InvalidInput("limit", f"an int of at least 1 is needed, not {limit!r}")
    return query


def checked_timeout(timeout: float | None) -> None:
    if timeout is not None and (not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not timeout >= 0):
        raise InvalidInput("timeout", f"seconds from 0 on are needed, or None, not {timeout!r}")


def _checked_events(given: Iterable[Event], may_be_empty: bool) -> tuple[Event, ...]:
    if isinstance(given, Event):
        raise InvalidInput("events", "a list of events is needed, not one: write [event]")
    if not isinstance(given, Iterable):
        raise InvalidInput("events", f"a list of events is needed, not {type(given).__name__}")
    events = checked_all(given, "events", Event)
    if not events and not may_be_empty:
        raise InvalidInput("events", "0 events; without a checkpoint to store, at least 1 is needed")
    if len(events) > MAX_EVENTS:
        raise InvalidInput("events", f"{len(events)} events, the limit is {MAX_EVENTS}")
    size = sum(len(event.data) for event in events)
    ids = {event.id for event in events if event.id is not None}
    if size > MAX_APPEND_BYTES:
        raise InvalidInput("events", f"{size} bytes of data in one append, the limit is {MAX_APPEND_BYTES}")
    if ids and len(ids) != len(events):
        problem = "every event of an append needs an id of its own, or none has one"
        raise InvalidInput("events", f"{len(ids)} different ids for {len(events)} events; {problem}")
    return events


def _checked_conditions(given: AppendCondition | Iterable[AppendCondition] | None) -> tuple[AppendCondition, ...]:
    if given is None:
        return ()
    if not isinstance(given, (AppendCondition, Iterable)):
        raise InvalidInput("condition", f"an AppendCondition is needed, or several, not {type(given).__name__}")
    if isinstance(given, AppendCondition):
        return (given,)
    conditions = checked_all(given, "condition", AppendCondition)
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidInput("condition", f"{len(conditions)} conditions, the limit is {MAX_CONDITIONS}")
    return conditions


def _checked_unless(given: Query | None) -> Query | None:
    if given is not None and not isinstance(given, Query):
        raise InvalidInput("unless", f"a Query is needed, not {type(given).__name__}")
    return given


def _checked_checkpoint(given: tuple[str, int]) -> tuple[str, int]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidInput("checkpoint", f"a tuple (name, position) is needed, not {given!r:.80}")
    return checked_name(given[0], "checkpoint.name"), checked_position(given[1], "checkpoint.position")
