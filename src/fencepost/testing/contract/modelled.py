"""The store against the definition of matching and against a model of the store, in cases that Hypothesis generates.

Each engine finds matches in its own way, by an index, in SQL or by conflict keys. `Matching` compares all of these ways
with `fencepost.buckets.matches`.

The model is a list of events, the definition of matching, and the rules of an append in a few lines. In `Modelled`, a
state machine looks for a sequence of calls after which store and model differ, and shortens it. Where positions have
gaps the model takes them from the store: it predicts the order of events and which appends are accepted, never a
position.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ...buckets import matches
from ...core.verdicts import Append
from ...errors import AppendRefused, CheckpointBehind, ConditionFailed, IdsOverlap, RecordChanged
from ...model import AppendCondition, Delete, Event, Placed, Put, Query, Record, SequencedEvent
from .. import strategies
from ..stores import Store
from .base import Contract, attempt, positions, take

ASKED = st.lists(strategies.queries, min_size=12, max_size=24)


class Matching(Contract):
    matching_examples: ClassVar[int] = 5
    """How many generated logs are tried; each of them with a dozen or more queries."""

    def test_every_verb_matches_as_the_kernel_defines_it(self) -> None:
        @given(log=strategies.logs, asked=ASKED, split=st.integers(1, 24))
        @settings(max_examples=self.matching_examples, deadline=None, suppress_health_check=list(HealthCheck))
        def compare(log: list[Event], asked: list[Query], split: int) -> None:
            store = self.open_store()
            try:
                # Two appends, so that an index of the newest events and an older one can both be in use.
                for part in (log[:split], log[split:]):
                    if part:
                        store.append(part)
                for query in asked:
                    _compare(store, query)
            finally:
                store.close()

        compare()


def _compare(store: Store, query: Query) -> None:
    log = list(store.read())
    matching = [event for event in log if matches(event, query)]
    assert list(store.read(query)) == matching
    assert list(store.read(query, backwards=True)) == matching[::-1]
    subscription = store.subscribe(query, timeout_s=0)
    assert take(subscription, len(log) + 1) == matching
    subscription.stop()
    middle = log[len(log) // 2].position
    for after in (0, middle):
        _compare_condition(store, AppendCondition(query, after=after), matching)
    _compare_unless(store, query, matching)


def _compare_condition(store: Store, condition: AppendCondition, matching: list[SequencedEvent]) -> None:
    """A checkpoint that does not grow refuses the append afterwards, so the log stays as it is."""
    conflicts = [position for position in positions(matching) if position > condition.after]
    outcome = attempt(lambda: store.append([], condition, checkpoint=("never", 0)))
    found = [outcome.conflict.position] if isinstance(outcome, ConditionFailed) else []
    assert found == conflicts[:1]


def _compare_unless(store: Store, query: Query, matching: list[SequencedEvent]) -> None:
    outcome = attempt(lambda: store.append([], unless=query, checkpoint=("never", 0)))
    found = [outcome.first] if isinstance(outcome, Placed) else []
    assert found == positions(matching)[:1]


class Modelled(Contract):
    durable: ClassVar[bool] = False
    """Whether the store outlives its handles."""

    examples: ClassVar[int] = 25
    """How many sequences are tried."""

    def test_any_sequence_of_verbs_agrees_with_the_model(self) -> None:
        run_state_machine_as_test(
            type("BoundStoreMachine", (StoreMachine,), {"suite": self}),
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    def open_first(self) -> Store:
        self._opened = self.open_store()
        return self._opened


NAMES = ["one", "two"]
IDS = [UUID(int=number) for number in range(8)]


class Model:
    """What a store must answer, from what it has answered so far."""

    def __init__(self) -> None:
        self.log: list[tuple[int, Event]] = []
        self.checkpoints: dict[str, int] = {}
        self.records: dict[str, Record] = {}
        self.revisions: dict[str, int] = {}  # the highest that a record of the name has had

    @property
    def head(self) -> int:
        return self.log[-1][0] if self.log else 0

    def found(self, query: Query, after: int = 0) -> list[int]:
        return [position for position, event in self.log if position > after and matches(event, query)]

    def judge(self, append: Append) -> Placed | type[AppendRefused] | tuple[AppendCondition, int] | None:
        """The expected refusal or placement; None if the append must be accepted."""
        events, checkpoint = append.events, append.checkpoint
        if events and events[0].id is not None:
            ids = {event.id for event in events}
            stored = [position for position, event in self.log if event.id in ids]
            if len(stored) == len(events):
                return Placed(stored[0], stored[-1], already=True)
            if stored:
                return IdsOverlap
        if append.unless is not None and (found := self.found(append.unless)):
            return Placed(found[0], found[0], already=True)
        for condition in append.conditions:
            if found := self.found(condition.fail_if_events_match, condition.after):
                return condition, found[0]
        if checkpoint is not None and checkpoint[1] <= self.checkpoints.get(checkpoint[0], 0):
            return CheckpointBehind
        for change in append.records:
            if change.expected != (self.records[change.name].revision if change.name in self.records else 0):
                return RecordChanged
        return None

    def change(self, changes: list[Put | Delete], revisions: tuple[int, ...]) -> None:
        """Take over what was stored. The store chooses the revision of a new record, above those of earlier ones."""
        for change, revision in zip(changes, revisions, strict=True):
            if isinstance(change, Delete):
                assert revision == 0
                del self.records[change.name]
            else:
                assert revision == change.expected + 1 or not change.expected
                assert revision > self.revisions.get(change.name, 0)
                self.records[change.name] = Record(change.name, change.value, revision)
                self.revisions[change.name] = revision


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with the model."""

    suite: Modelled  # set by the test: says how to open a store

    @initialize()
    def open(self) -> None:
        self.model = Model()
        self.store = self.suite.open_first()
        self.other = self.suite.open_again() if self.suite.durable else self.store

    @rule(data=st.data(), events=st.lists(strategies.events, min_size=1, max_size=3))
    def append(self, data: st.DataObject, events: list[Event]) -> None:
        """Blind, or with conditions from some earlier view of the log."""
        self._append(data, events)

    @rule(data=st.data(), events=st.lists(strategies.events, max_size=2), unless=strategies.queries)
    def append_unless(self, data: st.DataObject, events: list[Event], unless: Query) -> None:
        self._append(data, events or [Event("A")], unless=unless)

    @rule(
        data=st.data(),
        ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True),
        unless=st.none() | strategies.queries,
    )
    def append_with_ids(self, data: st.DataObject, ids: list[UUID], unless: Query | None) -> None:
        drawn = [data.draw(strategies.events) for _ in ids]
        events = [Event(one.type, data=one.data, tags=one.tags, id=id) for one, id in zip(drawn, ids, strict=True)]
        self._append(data, events, unless=unless)

    @rule(
        data=st.data(),
        events=st.lists(strategies.events, max_size=1),
        checkpoint=st.tuples(st.sampled_from(NAMES), st.integers(0, 8)),
    )
    def append_with_checkpoint(self, data: st.DataObject, events: list[Event], checkpoint: tuple[str, int]) -> None:
        self._append(data, events, checkpoint=checkpoint)

    @rule(
        data=st.data(),
        events=st.lists(strategies.events, max_size=1),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        checkpoint=st.none() | st.tuples(st.sampled_from(NAMES), st.integers(0, 8)),
    )
    def append_with_records(
        self, data: st.DataObject, events: list[Event], names: list[str], checkpoint: tuple[str, int] | None
    ) -> None:
        self._append(data, events, checkpoint=checkpoint, records=[self._change(data, name) for name in names])

    @rule(
        data=st.data(),
        query=st.none() | strategies.queries,
        limit=st.none() | st.integers(1, 5),
        backwards=st.booleans(),
    )
    def read(self, data: st.DataObject, query: Query | None, limit: int | None, backwards: bool) -> None:
        after = self._near_head(data)
        up_to = self._near_head(data) if data.draw(st.booleans()) else None
        bound = self.model.head if up_to is None else min(up_to, self.model.head)
        expected = [
            (position, event)
            for position, event in self.model.log
            if after < position <= bound and (query is None or matches(event, query))
        ]
        expected = (expected[::-1] if backwards else expected)[:limit]
        reading = self.store.read(query, after=after, up_to=up_to, limit=limit, backwards=backwards)
        assert [(event.position, event.event) for event in reading] == expected
        cut = limit is not None and len(expected) == limit and not backwards
        assert reading.head == (expected[-1][0] if cut else bound)

    @rule(data=st.data(), query=st.none() | strategies.queries)
    def subscribe(self, data: st.DataObject, query: Query | None) -> None:
        after = self._near_head(data)
        subscription = self.other.subscribe(query, after=after, timeout_s=0)
        expected = self.model.found(query or Query.all(), after)
        assert [event.position for event in subscription] == expected
        assert subscription.position == max(after, self.model.head)
        subscription.stop()

    @rule()
    def use_the_other_handle(self) -> None:
        self.store, self.other = self.other, self.store

    @rule()
    def reopen(self) -> None:
        if self.suite.durable:
            self.store.close()
            self.store = self.suite.open_again()

    @invariant()
    def the_head_the_checkpoints_and_the_records_agree(self) -> None:
        assert self.store.head() == self.model.head
        for name in NAMES:
            assert self.store.checkpoint(name) == self.model.checkpoints.get(name, 0)
            assert self.store.records.get(name) == self.model.records.get(name)
        assert list(self.store.records.list()) == sorted(self.model.records.values(), key=lambda record: record.name)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            log = [(event.position, event.event) for event in self.other.read()]
            assert log == self.model.log
            if self.suite.gapless:
                assert [position for position, _ in log] == list(range(1, len(log) + 1))
            self.store.close()
            self.other.close()

    def _near_head(self, data: st.DataObject) -> int:
        """0, a position of the log, or just below one.

        Drawn by number: on a cluster positions differ from run to run, and what is drawn must not depend on them.
        """
        known = [position for position, _ in self.model.log]
        near = [0, *known[-6:], *[position - 1 for position in known[-3:]]]
        return near[data.draw(st.integers(0, 9)) % len(near)]

    def _change(self, data: st.DataObject, name: str) -> Put | Delete:
        """A change of the record that expects its revision, or an earlier one, or that it does not exist."""
        current = self.model.records.get(name)
        revision = self.model.revisions.get(name, 0) if current is None else current.revision
        expected = data.draw(st.sampled_from([revision, revision, max(revision - 1, 0), 0]))
        if expected and data.draw(st.booleans()):
            return Delete(name, expected)
        return Put(name, data.draw(st.binary(max_size=3)), expected)

    def _append(
        self,
        data: st.DataObject,
        events: list[Event],
        unless: Query | None = None,
        checkpoint: tuple[str, int] | None = None,
        records: list[Put | Delete] | None = None,
    ) -> None:
        """Append with no conditions, or with some from an earlier view of the log."""
        queries = data.draw(st.lists(strategies.queries, max_size=2))
        afters = [self._near_head(data) + data.draw(st.integers(0, 1)) for _ in queries]
        conditions = [AppendCondition(query, after=after) for query, after in zip(queries, afters, strict=True)]
        changes = records or []
        expected = self.model.judge(Append(tuple(events), tuple(conditions), unless, checkpoint, tuple(changes)))
        note(f"expected: {expected}")
        answer = attempt(
            lambda: self.store.append(events, conditions, unless=unless, checkpoint=checkpoint, records=changes)
        )
        if expected is None:
            self._accepted(answer, events, checkpoint)
            self.model.change(changes, answer.revisions if isinstance(answer, Placed) else ())
        elif isinstance(expected, Placed):
            assert answer == expected
        elif isinstance(expected, tuple):
            assert isinstance(answer, ConditionFailed), answer
            assert (answer.condition, answer.conflict.position) == expected
            assert self._content(answer.conflict) in self.model.log
        else:
            assert type(answer) is expected

    def _accepted(self, answer: Any, events: list[Event], checkpoint: tuple[str, int] | None) -> None:
        assert isinstance(answer, Placed), answer
        assert not answer.already
        stored = list(self.store.read(after=self.model.head))
        assert [event.event for event in stored] == events
        self.model.log += [self._content(event) for event in stored]
        ends = (stored[0].position, stored[-1].position) if stored else (self.model.head, self.model.head)
        assert (answer.first, answer.last) == ends
        if checkpoint is not None:
            self.model.checkpoints.update([checkpoint])

    def _content(self, event: SequencedEvent) -> tuple[int, Event]:
        return event.position, event.event
