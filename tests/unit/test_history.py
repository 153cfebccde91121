"""The history checker finds each kind of violation, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from uuid import UUID

import pytest

import fencepost
from fencepost import AppendCondition, Event, Placed, Query, SequencedEvent, StoreUnavailable
from fencepost.buckets import matches
from fencepost.errors import AppendRefused, CheckpointBehind, ConditionFailed, IdsOverlap
from fencepost.store import EventStore
from fencepost.testing import ClientStore, History, Violation, check, load
from fencepost.testing.clients import Answered, Failed, Invoked, Saw
from fencepost.testing.faults import FaultyEngine, once, raising
from fencepost.testing.stores import engine_beneath

W1 = Query.of(tags={"wallet:1"})


def wallet(type: str, number: int = 1) -> Event:
    return Event(type, data=b"10", tags={f"wallet:{number}"})


@dataclass
class Story:
    """What two clients did, one after the other, and the log that came of it."""

    ada: History
    bob: History
    log: list[SequencedEvent]

    def check(self, *, gapless: bool = True) -> list[Violation]:
        return check([self.ada, self.bob], self.log, gapless=gapless)

    def renumber(self) -> None:
        """Put the log's positions right after its events were moved, so that only the move itself is wrong."""
        self.log = [moved(event, position) for position, event in enumerate(self.log, start=1)]


def moved(event: SequencedEvent, position: int) -> SequencedEvent:
    return SequencedEvent(position, event.type, event.tags, event.data, event.recorded_at, event.id, event.metadata)


def event_at(log: list[SequencedEvent], position: int) -> SequencedEvent:
    return next(event for event in log if event.position == position)


@pytest.fixture
def story() -> Story:
    store = fencepost.open("memory:")
    engine = FaultyEngine(engine_beneath(store))
    unlucky = EventStore(engine)
    ada, bob = ClientStore(unlucky, "ada"), ClientStore(unlucky, "bob")
    live = bob.subscribe(W1, timeout_s=0)
    ada.append([wallet("Opened"), wallet("Deposited")], AppendCondition(W1))  # ada 1: positions 1, 2
    bob.append([wallet("Opened", 2)])  # bob 1: position 3
    seen = bob.read(W1)
    assert len(list(seen)) == 2
    ada.append([wallet("Withdrawn")], AppendCondition(W1, after=2), checkpoint=("books", 2))  # ada 2: position 4
    with suppress(AppendRefused):
        bob.append([wallet("Withdrawn")], AppendCondition(W1, after=seen.head))  # bob 2: refused for 4
    engine.after = once(raising(StoreUnavailable("lost")))
    with suppress(StoreUnavailable):
        bob.append([wallet("Closed", 2), wallet("Buried", 2)])  # bob 3: positions 5, 6, not acknowledged
    ada.append([wallet("Audited")], unless=Query.of(types={"Audited"}))  # ada 3: position 7
    bob.append([wallet("Audited")], unless=Query.of(types={"Audited"}))  # bob 4: already at 7
    ids = [Event("Sent", id=UUID(int=1)), Event("Sent", id=UUID(int=2))]
    ada.append(ids)  # ada 4: positions 8, 9
    bob.append(ids)  # bob 5: already at 8, 9
    with suppress(IdsOverlap):
        bob.append([ids[0], Event("Sent", id=UUID(int=3))])  # bob 6: refused
    with suppress(CheckpointBehind):
        bob.append([wallet("Booked")], checkpoint=("books", 1))  # bob 7: refused
    ada.append([wallet("Booked")], checkpoint=("books", 9))  # ada 5: position 10
    engine.before = once(raising(StoreUnavailable("down")))
    with suppress(StoreUnavailable):
        ada.append([wallet("Never"), wallet("Never")])  # ada 6: not stored
    assert bob.head() == 10
    assert [event.position for event in live] == [1, 2, 4, 7, 10]
    live.stop()
    assert len(list(ada.read(backwards=True))) == 10
    return Story(ada.history, bob.history, list(store.read()))


def answer(history: History, number: int) -> int:
    """The place of the answer to the client's append of that number."""
    return next(place for place, entry in enumerate(history) if isinstance(entry, Answered) and entry.number == number)


def invocation(history: History, number: int) -> int:
    return next(place for place, entry in enumerate(history) if isinstance(entry, Invoked) and entry.number == number)


def set_outcome(history: History, number: int, outcome: object) -> None:
    place = answer(history, number)
    history[place] = replace(history[place], outcome=outcome)


def set_invocation(history: History, number: int, **changes: object) -> None:
    place = invocation(history, number)
    history[place] = replace(history[place], **changes)


def set_answer_time(history: History, number: int, at_ns: int) -> None:
    place = answer(history, number)
    history[place] = replace(history[place], at_ns=at_ns)


def set_seen(history: History, verb: str, **changes: object) -> None:
    place = next(place for place, entry in enumerate(history) if isinstance(entry, Saw) and entry.verb == verb)
    history[place] = replace(history[place], **changes)


def seen(history: History, verb: str) -> Saw:
    return next(entry for entry in history if isinstance(entry, Saw) and entry.verb == verb)


def conflict_of(story: Story) -> ConditionFailed:
    entry = story.bob[answer(story.bob, 2)]
    assert isinstance(entry, Answered)
    assert isinstance(entry.outcome, ConditionFailed)
    return entry.outcome


def test_a_history_that_is_right_has_no_violations(story: Story) -> None:
    assert story.check() == []


def lose_an_event(story: Story) -> None:
    del story.log[2]
    story.renumber()


def lose_half_of_a_failed_append(story: Story) -> None:
    del story.log[5]
    story.renumber()


def store_twice(story: Story) -> None:
    story.log.append(moved(story.log[2], 11))


def swap_the_events_of_an_append(story: Story) -> None:
    story.log[0], story.log[1] = story.log[1], story.log[0]
    story.renumber()


def put_a_stranger_between_the_events_of_an_append(story: Story) -> None:
    story.log.insert(8, SequencedEvent(0, "Stranger", frozenset(), b"", datetime.now(timezone.utc)))
    story.renumber()


def change_data(story: Story) -> None:
    event = story.log[3]
    story.log[3] = SequencedEvent(
        event.position, event.type, event.tags, b"11", event.recorded_at, event.id, event.metadata
    )


def store_what_was_refused(story: Story) -> None:
    entry = story.bob[invocation(story.bob, 2)]
    assert isinstance(entry, Invoked)
    event = entry.events[0]
    story.log.append(
        SequencedEvent(11, event.type, event.tags, event.data, datetime.now(timezone.utc), None, event.metadata)
    )


def store_what_nobody_appended(story: Story) -> None:
    metadata = {"client_append": "eve/1/0"}
    story.log.append(SequencedEvent(11, "Forged", frozenset(), b"", datetime.now(timezone.utc), None, metadata))


def tell_wrong_positions(story: Story) -> None:
    set_outcome(story.ada, 1, Placed(2, 3))


def tell_already_about_nothing(story: Story) -> None:
    set_outcome(story.bob, 4, Placed(77, 77, already=True))


def tell_already_about_something_else(story: Story) -> None:
    set_outcome(story.bob, 5, Placed(1, 2, already=True))


def tell_already_although_stored(story: Story) -> None:
    set_outcome(story.ada, 3, Placed(7, 7, already=True))


def accept_a_stale_condition(story: Story) -> None:
    set_invocation(story.ada, 2, conditions=(AppendCondition(W1, after=1),))


def accept_a_stale_condition_of_an_unacknowledged_append(story: Story) -> None:
    set_invocation(story.bob, 3, conditions=(AppendCondition(W1, after=2),))


def accept_although_unless_matches(story: Story) -> None:
    set_invocation(story.ada, 3, unless=Query.of(types={"Withdrawn"}))


def refuse_for_what_is_not_there(story: Story) -> None:
    refusal = conflict_of(story)
    set_outcome(story.bob, 2, ConditionFailed(refusal.condition, moved(refusal.conflict, 5)))


def refuse_for_what_is_not_after(story: Story) -> None:
    condition = AppendCondition(W1, after=4)
    set_invocation(story.bob, 2, conditions=(condition,))
    set_outcome(story.bob, 2, ConditionFailed(condition, conflict_of(story).conflict))


def refuse_for_what_does_not_match(story: Story) -> None:
    condition = AppendCondition(Query.of(types={"Deposited"}), after=3)
    set_invocation(story.bob, 2, conditions=(condition,))
    set_outcome(story.bob, 2, ConditionFailed(condition, conflict_of(story).conflict))


def refuse_by_a_condition_of_somebody_else(story: Story) -> None:
    set_invocation(story.bob, 2, conditions=(AppendCondition(W1, after=2),))


def refuse_for_a_later_conflict_than_the_first(story: Story) -> None:
    set_outcome(story.bob, 2, ConditionFailed(conflict_of(story).condition, event_at(story.log, 7)))


def refuse_for_what_was_appended_only_later(story: Story) -> None:
    condition = AppendCondition(W1, after=4)
    set_invocation(story.bob, 2, conditions=(condition,))
    set_outcome(story.bob, 2, ConditionFailed(condition, event_at(story.log, 7)))


def refuse_for_an_id_that_is_not_there(story: Story) -> None:
    set_outcome(story.bob, 6, IdsOverlap(UUID(int=7), 8, UUID(int=3)))


def refuse_for_a_checkpoint_that_nobody_set(story: Story) -> None:
    set_outcome(story.bob, 7, CheckpointBehind("books", 1, 5))


def acknowledge_before_a_lower_position_began(story: Story) -> None:
    entry = story.ada[invocation(story.ada, 1)]
    assert isinstance(entry, Invoked)
    set_answer_time(story.bob, 1, entry.at_ns - 1)


def move_a_checkpoint_twice(story: Story) -> None:
    set_invocation(story.ada, 5, checkpoint=("books", 2))


def move_a_checkpoint_back(story: Story) -> None:
    set_invocation(story.ada, 5, checkpoint=("books", 1))


def miss_an_event_in_a_reading(story: Story) -> None:
    set_seen(story.bob, "read", events=seen(story.bob, "read").events[1:])


def miss_an_event_in_a_subscription(story: Story) -> None:
    events = seen(story.bob, "subscribe").events
    set_seen(story.bob, "subscribe", events=events[:1] + events[2:])


def get_an_event_twice(story: Story) -> None:
    events = seen(story.bob, "subscribe").events
    set_seen(story.bob, "subscribe", events=(*events[:2], events[1], *events[2:]))


def get_events_out_of_order(story: Story) -> None:
    one, two, *rest = seen(story.bob, "subscribe").events
    set_seen(story.bob, "subscribe", events=(two, one, *rest))


def see_what_does_not_match(story: Story) -> None:
    set_seen(story.bob, "read", query=Query.of(types={"Opened"}))


def see_other_content(story: Story) -> None:
    (position, _), *rest = seen(story.bob, "read").events
    set_seen(story.bob, "read", events=((position, 0), *rest))


def see_before_it_was_appended(story: Story) -> None:
    set_seen(story.bob, "read", ended_ns=0)


def read_less_than_was_acknowledged(story: Story) -> None:
    set_seen(story.bob, "head", after=9, up_to=9)


def read_less_than_was_read_before(story: Story) -> None:
    early = seen(story.ada, "read")
    story.ada.append(replace(early, verb="head", began_ns=1, ended_ns=2, after=3, up_to=3, events=()))
    story.ada.append(replace(early, verb="head", began_ns=3, ended_ns=4, after=2, up_to=2, events=()))


def descend(story: Story) -> None:
    story.log[3], story.log[4] = story.log[4], story.log[3]


def leave_a_gap(story: Story) -> None:
    story.log.append(SequencedEvent(12, "Later", frozenset(), b"", datetime.now(timezone.utc)))


VIOLATIONS: list[tuple[Callable[[Story], None], str, str]] = [
    (descend, "log", "position 4 comes after position 5"),
    (leave_a_gap, "log", "positions 11 to 11 are missing"),
    (lose_an_event, "stored", "event 0 of append 1 of client bob was acknowledged from 3 to 3 and is lost"),
    (lose_half_of_a_failed_append, "stored", "of append 3 of client bob, which failed, 1 of 2 events are stored"),
    (store_twice, "stored", "the event 0 of append 1 of client bob is stored more than once: at 3 and 11"),
    (swap_the_events_of_an_append, "stored", "the events of append 1 of client ada are not next to each other"),
    (put_a_stranger_between_the_events_of_an_append, "stored", "the events of append 4 of client ada are not next"),
    (change_data, "stored", "position 4 differs from what append 2 of client ada gave as its event 0"),
    (store_what_was_refused, "stored", "append 2 of client bob was refused, but position 11 holds its event"),
    (store_what_nobody_appended, "stored", "position 11 holds 0 of append 1 of client eve, which no client appended"),
    (tell_wrong_positions, "stored", "append 1 of client ada was told positions 2 to 3, but its events are at 1 to 2"),
    (tell_already_about_nothing, "stored", "append 4 of client bob was told `already` at 77, where nothing is"),
    (tell_already_about_something_else, "stored", "`already` at 1, which has neither its ids nor matches `unless`"),
    (tell_already_although_stored, "stored", "append 3 of client ada was told `already`, but position 7 holds"),
    (accept_a_stale_condition, "condition", "append 2 of client ada is stored at 4, although 'Deposited' at 2"),
    (
        accept_a_stale_condition_of_an_unacknowledged_append,
        "condition",
        "append 3 of client bob is stored at 5, although 'Withdrawn' at 4 matches its condition and is after 2",
    ),
    (accept_although_unless_matches, "condition", "'Withdrawn' at 4 matches its `unless`"),
    (refuse_for_what_is_not_there, "refusal", "refused for 'Withdrawn' at 5, which is not in the log"),
    (refuse_for_what_is_not_after, "refusal", "refused for 'Withdrawn' at 4, which is not after 4"),
    (refuse_for_what_does_not_match, "refusal", "refused for 'Withdrawn' at 4, which does not match its condition"),
    (refuse_by_a_condition_of_somebody_else, "refusal", "by a condition that it did not have"),
    (refuse_for_a_later_conflict_than_the_first, "refusal", "although the first conflict is at 4"),
    (refuse_for_what_was_appended_only_later, "refusal", "which append 3 of client ada appended only later"),
    (refuse_for_an_id_that_is_not_there, "refusal", "which is not at 8"),
    (refuse_for_a_checkpoint_that_nobody_set, "refusal", "checkpoint 'books' at 5, where no client put it"),
    (
        acknowledge_before_a_lower_position_began,
        "order",
        "append 1 of client bob was acknowledged before append 1 of client ada began, but has position 3, above 1",
    ),
    (move_a_checkpoint_twice, "order", "both moved checkpoint 'books' to 2"),
    (move_a_checkpoint_back, "order", "append 5 of client ada moved checkpoint 'books' back to 1"),
    (miss_an_event_in_a_reading, "seen", "client bob (read after 0 up to 3) did not see position 1"),
    (miss_an_event_in_a_subscription, "seen", "client bob (subscribe after 0 up to 10) did not see position 2"),
    (get_an_event_twice, "seen", "got positions out of order or twice: [1, 2, 2, 4, 7, 10]"),
    (get_events_out_of_order, "seen", "got positions out of order or twice: [2, 1, 4, 7, 10]"),
    (see_what_does_not_match, "seen", "saw position 2, which does not belong there or is gone"),
    (see_other_content, "seen", "saw position 1 with other content than it has now"),
    (see_before_it_was_appended, "seen", "saw position 1 before append 1 of client ada had begun"),
    (read_less_than_was_acknowledged, "seen", "up to 10, but reached only 9"),
    (read_less_than_was_read_before, "seen", "had read up to 3, but reached only 2"),
]


@pytest.mark.parametrize(("plant", "promise", "words"), VIOLATIONS, ids=[plant.__name__ for plant, _, _ in VIOLATIONS])
def test_the_checker_finds_each_planted_violation(
    story: Story, plant: Callable[[Story], None], promise: str, words: str
) -> None:
    plant(story)
    violations = story.check()
    assert any(violation.promise == promise and words in violation.sentence for violation in violations), violations


def test_gaps_are_right_where_they_are_allowed(story: Story) -> None:
    leave_a_gap(story)
    assert story.check(gapless=False) == []


def test_events_that_no_client_noted_are_not_a_violation(story: Story) -> None:
    story.log.append(SequencedEvent(11, "Other", frozenset(), b"", datetime.now(timezone.utc)))
    assert story.check() == []


def test_an_append_that_was_never_answered_may_be_stored_or_not(story: Story) -> None:
    for number in (3, 4):
        del story.bob[answer(story.bob, number)]
    assert story.check() == []


def test_a_failed_append_that_is_not_stored_is_right(story: Story) -> None:
    place = invocation(story.ada, 6)
    assert isinstance(story.ada[place], Invoked)
    assert story.ada[answer(story.ada, 6)].outcome == Failed("StoreUnavailable('down')")  # type: ignore[union-attr]
    assert story.check() == []


def test_histories_survive_in_files_even_torn_ones(tmp_path: Path) -> None:
    store = fencepost.open("memory:")
    client = ClientStore(store, "ada", path=tmp_path / "ada.history")
    client.append([wallet("Opened")], AppendCondition(W1))
    with pytest.raises(ConditionFailed):
        client.append([wallet("Opened")], AppendCondition(W1))
    assert len(list(client.read(W1))) == 1
    client.close()
    whole = (tmp_path / "ada.history").read_bytes()
    history = load(tmp_path / "ada.history")
    assert check([history], store.read()) == []
    assert [type(entry) for entry in history] == [Invoked, Answered, Invoked, Answered, Saw]
    (tmp_path / "torn.history").write_bytes(whole[:-3])
    assert len(load(tmp_path / "torn.history")) == 4
    (tmp_path / "torn.history").write_bytes(whole[:20])
    assert load(tmp_path / "torn.history") == []


def test_two_clients_of_the_same_name_are_a_mistake_in_the_test(story: Story) -> None:
    with pytest.raises(AssertionError, match="two clients are named ada"):
        check([story.ada, list(story.ada)], story.log)


def test_a_long_history_is_checked_with_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls of `matches`, since time says nothing on a busy machine."""
    from fencepost.testing import history as module

    calls = 0

    def counted(event: SequencedEvent, query: Query) -> bool:
        nonlocal calls
        calls += 1
        return matches(event, query)

    monkeypatch.setattr(module, "matches", counted)
    count = 2_000
    log: list[SequencedEvent] = []
    history: History = []
    last: dict[int, int] = {}
    for number in range(1, count + 1):
        wallet_number = number % 100
        query = Query.of(tags={f"wallet:{wallet_number}"})
        condition = AppendCondition(query, after=last.get(wallet_number, 0))
        metadata = {"client_append": f"ada/{number}/0"}
        event = Event("Moved", tags={f"wallet:{wallet_number}"}, metadata=metadata)
        history.append(Invoked("ada", number, 2 * number, (event,), (condition,)))
        history.append(Answered("ada", number, 2 * number + 1, Placed(number, number)))
        moment = datetime.now(timezone.utc)
        log.append(SequencedEvent(number, event.type, event.tags, event.data, moment, None, metadata))
        last[wallet_number] = number
    assert check([history], log) == []
    assert calls <= 2 * count
