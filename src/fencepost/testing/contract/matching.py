"""Matching: every verb of a store finds exactly the events that the definition of matching names.

Each engine finds matches in its own way, by an index, in SQL or by conflict keys. Here generated logs and queries
compare all of these ways with `fencepost.buckets.matches`.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...buckets import matches
from ...errors import ConditionFailed
from ...model import AppendCondition, Event, Placed, Query, SequencedEvent
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
    subscription = store.subscribe(query, timeout=0)
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
