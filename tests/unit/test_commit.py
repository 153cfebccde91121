"""Group commit, with a scripted commit function: which callers lead and wait, and what errors and interrupts do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import AppendCondition, Event, Placed, StoreError, StoreUnavailable
from fencepost.core.group_commit import BATCH_EVENTS, Batcher, GroupCommit, Pending
from fencepost.core.verdicts import Append, Verdict, judge
from fencepost.engines.memory import MemoryEngine
from fencepost.testing import strategies
from fencepost.testing.contract.base import Running
from fencepost.testing.faults import Gate


def named(name: str, count: int = 1) -> Append:
    return Append((Event(name),) * count)


class Script(MemoryEngine):
    """An engine whose commit function notes its batches and runs a given action before each of them.

    The verdict of an append is where it is among all events, so that each caller's verdict is different.
    """

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.acts: list[Callable[[], None]] = []
        self.placed: dict[str, Placed] = {}
        self.group = GroupCommit(self)

    def commit(self, appends: Sequence[Append]) -> list[Verdict]:
        self.batches.append([append.events[0].type for append in appends])
        self.threads.append(threading.current_thread())
        if self.acts:
            self.acts.pop(0)()
        verdicts: list[Verdict] = []
        for append in appends:
            number = len(self.placed) + 1
            self.placed[append.events[0].type] = Placed(number, number)
            verdicts.append(Placed(number, number))
        return verdicts

    def start(self, name: str, count: int = 1) -> Running[Verdict]:
        """Append in a new thread; return when that thread waits or commits."""
        before = len(self.batches), len(self.group._queue)
        running: Running[Verdict] = Running(partial(self.group.run, named(name, count)))
        while (len(self.batches), len(self.group._queue)) == before:
            assert not running.ended(0) or len(self.batches) > before[0]
            sleep(0.0005)
        return running


@pytest.fixture
def script() -> Script:
    return Script()


def hold(script: Script) -> tuple[Gate, Running[Verdict]]:
    """A first caller, held in the middle of its commit."""
    gate = Gate()
    script.acts.append(gate)
    first = script.start("first")
    gate.wait_until_reached()
    return gate, first


def test_a_single_caller_commits_by_itself(script: Script) -> None:
    assert script.group.run(named("only")) == Placed(1, 1)
    assert script.threads == [threading.current_thread()]


def test_all_waiting_appends_are_one_batch_and_each_gets_its_own_verdict(script: Script) -> None:
    gate, first = hold(script)
    waiting = {name: script.start(name) for name in "abcde"}
    gate.open()
    assert first.result() == script.placed["first"]
    for name, running in waiting.items():
        assert running.result() == script.placed[name]
    assert script.batches == [["first"], ["a", "b", "c", "d", "e"]]


def test_a_leader_whose_append_is_decided_hands_the_lead_to_a_waiting_caller(script: Script) -> None:
    gate, first = hold(script)
    second = Gate()
    script.acts.append(second)
    waiting = [script.start(name) for name in "ab"]
    gate.open()
    second.wait_until_reached()
    assert first.result() == script.placed["first"], "the first leader is free while the next one commits"
    assert script.threads[0] is not script.threads[1]
    second.open()
    for running in waiting:
        running.result()


def test_when_no_caller_waits_the_next_caller_leads(script: Script) -> None:
    for number in range(1, 4):
        assert script.group.run(named(f"call {number}")) == Placed(number, number)
    assert len(script.batches) == 3


def test_a_storage_error_fails_the_whole_batch_and_the_next_one_works(script: Script) -> None:
    gate, first = hold(script)
    waiting = [script.start(name) for name in "abc"]

    def fail() -> None:
        raise StoreUnavailable("the disk is full")

    script.acts.append(fail)
    gate.open()
    first.result()
    errors = []
    for running in waiting:
        with pytest.raises(StoreUnavailable, match="the disk is full") as raised:
            running.result()
        errors.append(raised.value)
    assert len({id(error) for error in errors}) == 3, "each caller has an error of its own"
    assert script.group.run(named("next")) == script.placed["next"]


class Stubborn(Exception):
    """An error that cannot be created from its arguments, like those of some drivers."""

    def __init__(self, *, code: int) -> None:
        super().__init__("stubborn")
        self.code = code


def test_an_error_that_cannot_be_copied_reaches_the_caller_all_the_same(script: Script) -> None:
    def fail() -> None:
        raise Stubborn(code=7)

    script.acts.append(fail)
    with pytest.raises(Stubborn):
        script.group.run(named("only"))
    assert script.group.run(named("next")) == script.placed["next"]


def test_too_few_verdicts_are_an_error_for_every_caller_and_no_caller_hangs() -> None:
    engine = MemoryEngine()
    engine.commit = lambda appends: []  # type: ignore[method-assign]
    group = GroupCommit(engine)
    for _ in range(2):
        with pytest.raises((ValueError, StoreError)):
            group.run(named("only"))


def test_an_interrupted_leader_leaves_no_caller_waiting(script: Script) -> None:
    gate, first = hold(script)

    def interrupt() -> None:
        raise KeyboardInterrupt

    script.acts.append(interrupt)
    leader, follower = script.start("leader"), script.start("follower")
    last = Gate()
    script.acts.append(last)
    gate.open()
    first.result()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    with pytest.raises(StoreError, match="interrupted"):
        follower.result()
    last.open()
    assert script.group.run(named("next")) == script.placed["next"]


def test_an_interrupted_leader_hands_the_lead_to_a_caller_that_came_meanwhile(script: Script) -> None:
    gate = Gate()

    def interrupt() -> None:
        gate()
        raise KeyboardInterrupt

    script.acts.append(interrupt)
    leader = script.start("leader")
    gate.wait_until_reached()
    waiting = [script.start(name) for name in "ab"]
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    assert [running.result() for running in waiting] == [script.placed["a"], script.placed["b"]]


def test_a_leader_that_meant_to_go_on_and_is_interrupted_passes_the_lead_on_all_the_same(script: Script) -> None:
    gate = Gate()

    def interrupt() -> None:
        gate()
        raise KeyboardInterrupt

    script.acts.append(interrupt)
    taken = Pending[Append, Verdict](named("taken"))
    assert script.group.enqueue(taken)
    leading = Running(lambda: script.group.lead(taken, keep=True))
    gate.wait_until_reached()
    waiting = script.start("waiting")
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        leading.result()
    assert waiting.result() == script.placed["waiting"]
    with pytest.raises(StoreError, match="interrupted"):
        taken.result()


@pytest.mark.parametrize("appointed", [False, True], ids=["while it waits", "when it is to lead"])
def test_an_interrupted_follower_leaves_no_caller_waiting(
    script: Script, monkeypatch: pytest.MonkeyPatch, appointed: bool
) -> None:
    wait = Pending.wait_or_be_due
    interrupts = Gate()

    def interrupted(pending: Pending[Append, Verdict]) -> None:
        if pending.request.events[0].type != "interrupted":
            return wait(pending)
        if appointed:
            wait(pending)
        else:
            interrupts()
        raise KeyboardInterrupt

    monkeypatch.setattr(Pending, "wait_or_be_due", interrupted)
    gate, first = hold(script)
    follower = script.start("interrupted")
    others = [script.start(name) for name in "ab"]
    interrupts.open()
    if not appointed:
        with pytest.raises(KeyboardInterrupt):
            follower.result()
    gate.open()
    first.result()
    with pytest.raises(KeyboardInterrupt):
        follower.result()
    assert [running.result() for running in others] == [script.placed["a"], script.placed["b"]]
    assert script.batches == [["first"], ["a", "b"]], "what was withdrawn is never stored"
    assert script.group.run(named("next")) == script.placed["next"]


def test_what_is_withdrawn_before_a_leader_took_it_is_never_stored(script: Script) -> None:
    gate, first = hold(script)
    pending = Pending[Append, Verdict](named("withdrawn"))
    assert not script.group.enqueue(pending)
    other = script.start("other")
    assert script.group.withdraw(pending)
    assert not script.group.withdraw(pending)
    gate.open()
    first.result()
    other.result()
    assert script.batches == [["first"], ["other"]]


def test_what_a_leader_has_taken_cannot_be_withdrawn(script: Script) -> None:
    gate, first = hold(script)
    pending = Pending[Append, Verdict](named("taken"))
    script.group.enqueue(pending)
    second = Gate()
    script.acts.append(second)
    other = script.start("other")
    gate.open()
    # The caller that is woken to lead replaces the one that does not wait here.
    leading = Running(lambda: (pending.wait(), script.group.lead(pending)))
    second.wait_until_reached()
    assert not script.group.withdraw(pending)
    second.open()
    first.result()
    other.result()
    leading.result()
    assert pending.result() == script.placed["taken"]


def test_a_huge_append_is_a_batch_of_its_own(script: Script) -> None:
    gate, first = hold(script)
    running = [
        script.start("small", 10),
        script.start("huge", BATCH_EVENTS + 1),
        script.start("large", BATCH_EVENTS - 10),
        script.start("fits", 10),
        script.start("too much", 1),
    ]
    gate.open()
    for one in [first, *running]:
        one.result()
    assert script.batches == [["first"], ["small"], ["huge"], ["large", "fits"], ["too much"]]


def test_under_load_every_append_is_committed_once_and_never_two_batches_at_a_time(script: Script) -> None:
    committing = threading.Lock()
    commit = script.commit

    def alone(appends: Sequence[Append]) -> list[Verdict]:
        assert committing.acquire(blocking=False), "two threads commit at once"
        try:
            return commit(appends)
        finally:
            committing.release()

    script.commit = alone  # type: ignore[method-assign]
    group = script.group

    def write(writer: int) -> None:
        for number in range(50):
            name = f"{writer}/{number}"
            assert group.run(named(name)) == script.placed[name]

    for running in [Running(partial(write, writer)) for writer in range(8)]:
        running.result()
    committed = [name for batch in script.batches for name in batch]
    assert sorted(committed) == sorted(f"{writer}/{number}" for writer in range(8) for number in range(50))


appends = st.lists(
    st.builds(
        Append,
        st.lists(strategies.events, min_size=1, max_size=2).map(tuple),
        st.lists(st.builds(AppendCondition, strategies.queries, after=st.integers(0, 6)), max_size=2).map(tuple),
        st.none() | strategies.queries,
        st.none() | st.tuples(st.just("name"), st.integers(0, 3)),
    ),
    max_size=6,
)


@given(before=appends, batch=appends)
def test_a_batch_is_judged_as_if_its_appends_had_come_one_by_one(before: list[Append], batch: list[Append]) -> None:
    together, one_by_one = MemoryEngine(), MemoryEngine()
    for engine in (together, one_by_one):
        engine.commit(before)
    verdicts = [engine_verdict for append in batch for engine_verdict in one_by_one.commit([append])]
    assert judge(batch, together) == verdicts
    assert together.head() == one_by_one.head()


@pytest.mark.parametrize("step", ["takes", "wakes"])
def test_a_signal_while_a_leader_on_an_event_loop_takes_or_wakes_a_batch_leaves_no_request_waiting(step: str) -> None:
    class Interrupted(Pending[str, str]):
        def wake(self) -> None:
            if step == "wakes":
                signal.raise_signal(signal.SIGINT)
            super().wake()

    def size(request: str) -> int:
        if step == "takes" and request == "second":
            signal.raise_signal(signal.SIGINT)
        return 1

    async def act(requests: Sequence[str]) -> list[str]:
        return [request.upper() for request in requests]

    batcher: Batcher[str, str] = Batcher(lambda requests: list(requests), most=3, size=size)
    pendings = [Interrupted("first"), Pending[str, str]("second"), Pending[str, str]("third")]
    assert [batcher.enqueue(pending) for pending in pendings] == [True, False, False]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        leading = batcher.lead_async(pendings[0], act)
        with pytest.raises(KeyboardInterrupt):
            leading.send(None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [pending.wait(0) for pending in pendings] == [True] * 3, "every caller was woken"
    assert all(pending.decided for pending in pendings)
    assert batcher.run("next") == "next", "the lead was passed on"


def test_a_note_that_one_caller_adds_to_its_error_is_not_in_the_error_of_another() -> None:
    error = StoreUnavailable("full")
    error.add_note("of the engine")
    pendings = [Pending[Append, Verdict](named(name)) for name in "ab"]
    raised = []
    for pending in pendings:
        pending.error = error
        with pytest.raises(StoreUnavailable) as caught:
            pending.result()
        caught.value.add_note(f"of {pending.request.events[0].type}")
        raised.append(caught.value.__notes__)
    assert raised == [["of the engine", "of a"], ["of the engine", "of b"]]
