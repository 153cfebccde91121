"""The history checker: does what concurrent clients did and saw agree with the log?

`check` compares the histories of all clients (see clients.py) with the final log, and returns a sentence for
everything that cannot have happened in a store that keeps its promises:

    log        positions ascend, and are gapless where that is promised
    stored     what was acknowledged is there once, whole, in order and unchanged; what was
               refused is not there; what failed is there whole or not at all
    condition  at the position of each stored append, its conditions and `unless` held
    refusal    the event, id or checkpoint that a refusal names is there and justifies it
    order      an append that was acknowledged before another append began has the lower position
    seen       a client that saw the log up to a position saw everything up to it, unchanged; and no
               client sees less than was acknowledged, or seen, before its call began

The order of the log is the only order needed: the store promises that appends take effect one
by one, at their positions. So each promise is checked on its own, by an index of the log under
the kernel's keys, in time nearly linear in the size of the history.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, TypeAlias

from ..buckets import Key, matches, read_keys, write_keys
from ..errors import CheckpointBehind, ConditionFailed, IdsOverlap
from ..model import Placed, Query, QueryItem, SequencedEvent
from .clients import MARK, Answered, Failed, History, Invoked, Outcome, Saw, fingerprint, mark

Finding: TypeAlias = tuple[str, str]
"""A promise that was broken, and the sentence that says how."""

_position: Final = attrgetter("position")


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and the sentence that says how."""

    promise: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"


def check(histories: Iterable[History], log: Iterable[SequencedEvent], *, gapless: bool = True) -> list[Violation]:
    """Everything that is wrong; an empty list proves the history right."""
    checker = _Checker(histories, list(log))
    found = chain(
        checker.check_log(gapless),
        checker.check_stored(),
        checker.check_conditions(),
        checker.check_refusals(),
        checker.check_order(),
        checker.check_checkpoints(),
        checker.check_seen(),
        checker.check_freshness(),
    )
    return [Violation(promise, sentence) for promise, sentence in found]


class Index:
    """The log by the kernel's keys."""

    def __init__(self, log: Sequence[SequencedEvent]) -> None:
        self.log = log
        self.positions = [event.position for event in log]
        self.at = {event.position: event for event in log}
        self._by_key: dict[Key, list[SequencedEvent]] = {}
        for event in log:
            for key in write_keys(event):
                self._by_key.setdefault(key, []).append(event)

    def matching(self, query: Query, after: int, up_to: int) -> Iterator[SequencedEvent]:
        """The matching events of the range; those of each key in order."""
        found = {event.position: event for run in self._runs(query, after, up_to) for event in run}
        return iter(found.values())

    def first(self, query: Query, after: int, before: int) -> SequencedEvent | None:
        """The first match with after < position < before."""
        firsts = [next(run, None) for run in self._runs(query, after, before - 1)]
        return min(filter(None, firsts), key=_position, default=None)

    def _runs(self, query: Query, after: int, up_to: int) -> Iterator[Iterator[SequencedEvent]]:
        """For each key of the query, the matching events of the range in order."""
        for key in {key for item in query.items for key in self._keys(item)}:
            events = self._by_key.get(key, [])
            start = bisect_right(events, after, key=_position)
            end = bisect_right(events, up_to, key=_position)
            yield (event for event in map(events.__getitem__, range(start, end)) if matches(event, query))

    def _keys(self, item: QueryItem) -> Iterable[Key]:
        """As `read_keys`, by the rarest of the tags instead of just any."""
        if item.tags:
            tags: list[Key] = [("tag", tag) for tag in sorted(item.tags)]
            return [min(tags, key=lambda key: len(self._by_key.get(key, ())))]
        return read_keys(item)


@dataclass(slots=True)
class _Attempt:
    """An append, from its invocation to its end, with where its events are."""

    invoked: Invoked
    answered_ns: int | None
    outcome: Outcome
    found: list[SequencedEvent]

    @property
    def stored(self) -> bool:
        """Whether this append itself wrote something."""
        return bool(self.found)

    @property
    def first(self) -> int:
        return self.found[0].position

    def __str__(self) -> str:
        return str(self.invoked)


class _Checker:
    def __init__(self, histories: Iterable[History], log: list[SequencedEvent]) -> None:
        invoked: dict[tuple[str, int], Invoked] = {}
        answered: dict[tuple[str, int], Answered] = {}
        self.saw: list[Saw] = []
        for entry in (entry for history in histories for entry in history):
            if isinstance(entry, Saw):
                self.saw.append(entry)
                continue
            book: dict[tuple[str, int], Invoked] | dict[tuple[str, int], Answered]
            book = invoked if isinstance(entry, Invoked) else answered
            assert (entry.client, entry.number) not in book, f"two clients are named {entry.client}"
            book[entry.client, entry.number] = entry  # type: ignore[assignment]
        self.log = log
        self.index = Index(sorted(log, key=_position))
        self.places: dict[str, list[SequencedEvent]] = defaultdict(list)
        for event in self.index.log:
            if MARK in event.metadata:
                self.places[event.metadata[MARK]].append(event)
        self.attempts = [self._attempt(one, answered.get(key)) for key, one in invoked.items()]
        self.by_append = {(one.invoked.client, one.invoked.number): one for one in self.attempts}

    def _attempt(self, invoked: Invoked, answered: Answered | None) -> _Attempt:
        marks = (mark(invoked.client, invoked.number, index) for index in range(len(invoked.events)))
        found = [event for one in marks for event in self.places.get(one, ())[:1]]
        if answered is None:
            return _Attempt(invoked, None, Failed("never answered"), found)
        return _Attempt(invoked, answered.at_ns, answered.outcome, found)

    def check_log(self, gapless: bool) -> Iterator[Finding]:
        previous = 0
        for event in self.log:
            if event.position <= previous:
                yield "log", f"position {event.position} comes after position {previous}"
            elif gapless and event.position != previous + 1:
                yield "log", f"positions {previous + 1} to {event.position - 1} are missing"
            previous = event.position
        for text, events in self.places.items():
            if len(events) > 1:
                where = " and ".join(str(event.position) for event in events)
                yield "stored", f"the event {self._of(text)} is stored more than once: at {where}"
            client, number, index = text.rsplit("/", 2)
            owner = self.by_append.get((client, int(number)))
            if owner is None or int(index) >= len(owner.invoked.events):
                yield "stored", f"position {events[0].position} holds {self._of(text)}, which no client appended"

    def check_stored(self) -> Iterator[Finding]:
        for attempt in self.attempts:
            outcome = attempt.outcome
            if isinstance(outcome, Placed) and outcome.already:
                yield from self._check_already(attempt, outcome)
            elif isinstance(outcome, Placed):
                yield from self._check_placed(attempt, outcome)
            elif not isinstance(outcome, Failed) and attempt.stored:
                yield "stored", f"{attempt} was refused, but position {attempt.first} holds its event"
            if attempt.stored:
                yield from self._check_whole(attempt)

    def _check_placed(self, attempt: _Attempt, placed: Placed) -> Iterator[Finding]:
        for index in range(len(attempt.invoked.events)):
            if not self.places.get(mark(attempt.invoked.client, attempt.invoked.number, index)):
                told = f"was acknowledged from {placed.first} to {placed.last}"
                yield "stored", f"event {index} of {attempt} {told} and is lost"
        if attempt.stored and (attempt.first, attempt.found[-1].position) != (placed.first, placed.last):
            stored = f"{attempt.first} to {attempt.found[-1].position}"
            told = f"{placed.first} to {placed.last}"
            yield "stored", f"{attempt} was told positions {told}, but its events are at {stored}"

    def _check_already(self, attempt: _Attempt, placed: Placed) -> Iterator[Finding]:
        if attempt.stored:
            yield "stored", f"{attempt} was told `already`, but position {attempt.first} holds its event"
        first, last = self.index.at.get(placed.first), self.index.at.get(placed.last)
        if first is None or last is None:
            yield "stored", f"{attempt} was told `already` at {placed.first}, where nothing is"
            return
        ids = {event.id for event in attempt.invoked.events if event.id is not None}
        by_ids = bool(ids) and {first.id, last.id} <= ids
        unless = attempt.invoked.unless
        by_unless = unless is not None and matches(first, unless)
        if not by_ids and not by_unless:
            yield (
                "stored",
                f"{attempt} was told `already` at {placed.first}, which has neither its ids nor matches `unless`",
            )

    def _check_whole(self, attempt: _Attempt) -> Iterator[Finding]:
        expected, found = attempt.invoked.events, attempt.found
        if len(found) != len(expected) and isinstance(attempt.outcome, Failed):
            yield "stored", f"of {attempt}, which failed, {len(found)} of {len(expected)} events are stored"
        start = bisect_right(self.index.positions, found[0].position) - 1
        if found != self.index.log[start : start + len(found)]:
            where = [event.position for event in found]
            yield "stored", f"the events of {attempt} are not next to each other in their order: {_shortened(where)}"
        for event in found:
            index = int(event.metadata[MARK].rsplit("/", 1)[1])
            if event.event != expected[index]:
                yield "stored", f"position {event.position} differs from what {attempt} gave as its event {index}"

    def check_conditions(self) -> Iterator[Finding]:
        for attempt in self.attempts:
            if not attempt.stored:
                continue
            guards = [
                (each.fail_if_events_match, each.after, f"condition and is after {each.after}")
                for each in attempt.invoked.conditions
            ]
            if attempt.invoked.unless is not None:
                guards.append((attempt.invoked.unless, 0, "`unless`"))
            for query, after, guard in guards:
                missed = self.index.first(query, after, attempt.first)
                if missed is not None:
                    where = f"{attempt} is stored at {attempt.first}, although {missed.type!r} at {missed.position}"
                    yield "condition", f"{where} matches its {guard}"

    def check_refusals(self) -> Iterator[Finding]:
        for attempt in self.attempts:
            outcome = attempt.outcome
            if isinstance(outcome, ConditionFailed):
                yield from self._check_conflict(attempt, outcome)
            elif isinstance(outcome, IdsOverlap):
                stored = self.index.at.get(outcome.position)
                if stored is None or stored.id != outcome.stored:
                    yield (
                        "refusal",
                        f"{attempt} was refused for id {outcome.stored}, which is not at {outcome.position}",
                    )
            elif isinstance(outcome, CheckpointBehind) and not self._was_ahead(attempt, outcome):
                where = f"checkpoint {outcome.name!r} at {outcome.current}, where no client put it"
                yield "refusal", f"{attempt} was refused for {where}"

    def _check_conflict(self, attempt: _Attempt, refusal: ConditionFailed) -> Iterator[Finding]:
        condition, conflict = refusal.condition, refusal.conflict
        named = f"{attempt} was refused for {conflict.type!r} at {conflict.position}"
        stored = self.index.at.get(conflict.position)
        if condition not in attempt.invoked.conditions:
            yield "refusal", f"{named} by a condition that it did not have"
        elif stored != conflict:
            yield "refusal", f"{named}, which is not in the log"
        elif conflict.position <= condition.after:
            yield "refusal", f"{named}, which is not after {condition.after}"
        elif not matches(conflict, condition.fail_if_events_match):
            yield "refusal", f"{named}, which does not match its condition"
        else:
            earlier = self.index.first(condition.fail_if_events_match, condition.after, conflict.position)
            if earlier is not None:
                yield "refusal", f"{named}, although the first conflict is at {earlier.position}"
            owner = self._owner(conflict)
            if owner is not None and attempt.answered_ns is not None and owner.invoked.at_ns > attempt.answered_ns:
                yield "refusal", f"{named}, which {owner} appended only later"

    def _was_ahead(self, attempt: _Attempt, refusal: CheckpointBehind) -> bool:
        return any(
            other.invoked.checkpoint == (refusal.name, refusal.current)
            and isinstance(other.outcome, (Placed, Failed))
            and (attempt.answered_ns is None or other.invoked.at_ns <= attempt.answered_ns)
            for other in self.attempts
        )

    def check_order(self) -> Iterator[Finding]:
        """From the last position down: no append above may have been acknowledged before one below began."""
        earliest: _Attempt | None = None
        stored = [attempt for attempt in self.attempts if attempt.stored]
        for attempt in sorted(stored, key=lambda attempt: attempt.first, reverse=True):
            if earliest is not None and _answer_ns(earliest) < attempt.invoked.at_ns:
                place = f"has position {earliest.first}, above {attempt.first}"
                yield "order", f"{earliest} was acknowledged before {attempt} began, but {place}"
            if attempt.answered_ns is not None and (earliest is None or attempt.answered_ns < _answer_ns(earliest)):
                earliest = attempt

    def check_checkpoints(self) -> Iterator[Finding]:
        """Of one name, each value is stored once, and they grow with the positions."""
        moved: dict[str, list[_Attempt]] = defaultdict(list)
        for attempt in self.attempts:
            accepted = isinstance(attempt.outcome, Placed) and not attempt.outcome.already
            if attempt.invoked.checkpoint is not None and accepted:
                moved[attempt.invoked.checkpoint[0]].append(attempt)
        for name, attempts in moved.items():
            values: dict[int, _Attempt] = {}
            for attempt in attempts:
                other = values.setdefault(_value(attempt), attempt)
                if other is not attempt:
                    yield "order", f"{other} and {attempt} both moved checkpoint {name!r} to {_value(attempt)}"
            in_order = sorted((one for one in attempts if one.stored), key=lambda attempt: attempt.first)
            for one, two in pairwise(in_order):
                if _value(one) > _value(two):
                    yield "order", f"{two} moved checkpoint {name!r} back to {_value(two)}, after {one}"

    def check_seen(self) -> Iterator[Finding]:
        """A client that saw the log up to a position saw what is stored up to there now."""
        for saw in self.saw:
            seen = [position for position, _ in saw.events]
            if any(one >= two for one, two in pairwise(seen)):
                yield "seen", f"{saw} got positions out of order or twice: {_shortened(seen)}"
            expected = {event.position: event for event in self.index.matching(saw.query, saw.after, saw.up_to)}
            missing = sorted(expected.keys() - set(seen))
            if missing:
                owner = self._owner(expected[missing[0]])
                sentence = f"{saw} did not see position {missing[0]}, of {owner or 'an unrecorded append'}"
                yield "seen", f"{sentence}: it was added below what had been seen, or skipped"
            for position, print_ in saw.events:
                if position not in expected:
                    yield "seen", f"{saw} saw position {position}, which does not belong there or is gone"
                elif print_ != fingerprint(expected[position]):
                    yield "seen", f"{saw} saw position {position} with other content than it has now"
                else:
                    owner = self._owner(expected[position])
                    if owner is not None and owner.invoked.at_ns > saw.ended_ns:
                        yield "seen", f"{saw} saw position {position} before {owner} had begun"

    def check_freshness(self) -> Iterator[Finding]:
        """No reading reaches less far than what was acknowledged, or read, before it began."""
        known = [  # when, up to which position, and the sentence that says so
            (attempt.answered_ns, attempt.outcome.last, f"{attempt} was acknowledged")
            for attempt in self.attempts
            if attempt.answered_ns is not None and isinstance(attempt.outcome, Placed) and attempt.invoked.events
        ]
        # A subscription shows things late by nature, and a bounded reading ends where it was told to.
        readings = [saw for saw in self.saw if saw.verb != "subscribe" and not saw.bounded]
        known += [(saw.ended_ns, saw.up_to, f"{saw} had read") for saw in readings]
        known.sort()
        place, highest, by = 0, 0, ""
        for saw in sorted(readings, key=lambda saw: saw.began_ns):
            while place < len(known) and known[place][0] < saw.began_ns:
                if known[place][1] > highest:
                    _, highest, by = known[place]
                place += 1
            if saw.up_to < highest:
                yield "seen", f"{saw} began after {by} up to {highest}, but reached only {saw.up_to}"

    def _owner(self, event: SequencedEvent) -> _Attempt | None:
        text = event.metadata.get(MARK)
        if text is None:
            return None
        client, number, _ = text.rsplit("/", 2)
        return self.by_append.get((client, int(number)))

    def _of(self, text: str) -> str:
        client, number, index = text.rsplit("/", 2)
        return f"{index} of append {number} of client {client}"


def _answer_ns(attempt: _Attempt) -> int:
    assert attempt.answered_ns is not None
    return attempt.answered_ns


def _value(attempt: _Attempt) -> int:
    assert attempt.invoked.checkpoint is not None
    return attempt.invoked.checkpoint[1]


def _shortened(positions: list[int]) -> str:
    return f"{positions}" if len(positions) <= 10 else f"{positions[:10]} and {len(positions) - 10} more"
