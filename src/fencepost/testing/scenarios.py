"""Given, when, then: a decision as a sentence, without a store.

    given(WalletOpened("w1", "Ada", 100))
        .when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)
        .then(WithdrawalMade("w1", "x", 50))

The given events go through their codecs into stored form, the decision runs its whole course, and
the list of events answers its reads and judges its append as a store would. What a decision reads
outside its boundary is therefore missing here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

from ..buckets import matches
from ..decisions.clocks import clock, now
from ..decisions.deciding import Decided, Decision
from ..decisions.events import encode
from ..decisions.projections import Projection, afresh
from ..decisions.steps import Append, Await, Course, Read, Sleep
from ..errors import FencepostError
from ..model import Event, Placed, SequencedEvent

BEGINNING = datetime(2000, 1, 1, tzinfo=timezone.utc)


def given(*events: object) -> Given:
    """The events that have happened: typed ones, `Event`s, or lists of them."""
    return Given(events)


class Given:
    """A history, on which a decision can be tried."""

    def __init__(self, events: Iterable[object], moment: datetime | None = None) -> None:
        self._moment = moment
        self._log: list[SequencedEvent] = []
        with self._clock():
            _append(self._log, [encode(event) for event in _flat(events)])

    def at(self, moment: datetime) -> Given:
        """The same history, decided upon at the given time by `now()`."""
        history = Given(())
        history._log, history._moment = self._log, moment
        return history

    def and_(self, *events: object) -> Given:
        """More history; after `at`, recorded at that time."""
        history = Given((), self._moment)
        history._log = list(self._log)
        with history._clock():
            _append(history._log, [encode(event) for event in _flat(events)])
        return history

    def when(self, decision: Decision[Any], /, *args: Any, **kwargs: Any) -> Then:
        """Take the decision. What it raises is kept for `then`."""
        log = list(self._log)
        with self._clock():
            try:
                decided = _drive(log, decision.course(args, kwargs, None))
            except Exception as error:
                return Then(None, error)
        return Then(decided, None)

    def then(self, projection: Projection, /, **state: Any) -> Given:
        """Nothing is decided: the history, as the projection sees it, has come to this state."""
        folded = afresh(projection)
        for event in self._log:
            folded.apply(event)
        actual = {name: getattr(folded, name) for name in state}
        assert actual == state, f"{folded!r} has {actual}, not {state}"
        return self

    def _clock(self) -> ExitStack:
        stack = ExitStack()
        if self._moment is not None:
            stack.enter_context(clock(self._moment))
        return stack


class Then:
    """What came of a decision, to be compared with what should have."""

    def __init__(self, decided: Decided | None, error: Exception | None) -> None:
        self._decided = decided
        self._error = error

    @property
    def decided(self) -> Decided:
        """The result; raises what the decision raised."""
        if self._error is not None:
            raise self._error
        assert self._decided is not None
        return self._decided

    def then(self, *expected: Any) -> Then:
        """The decision wrote exactly these events, or raised this error, given by class or by example."""
        if len(expected) == 1 and _is_error(expected[0]):
            self._then_raised(expected[0])
            return self
        decided = self.decided
        assert not decided.already, f"it was decided before, by {list(decided.events)}, and nothing was written"
        written, wanted = list(decided.events), _flat(expected)
        assert written == wanted, f"decided was {written}, not {wanted}"
        return self

    def then_nothing(self) -> Then:
        """The decision was for nothing: no event, no error."""
        return self.then()

    def then_already(self, *expected: Any) -> Then:
        """The decision was recognised as taken before, with these events, and wrote nothing."""
        decided = self.decided
        assert decided.already, f"it was decided now: {list(decided.events)}"
        earlier, wanted = list(decided.events), _flat(expected)
        assert earlier == wanted, f"decided before was {earlier}, not {wanted}"
        return self

    def _then_raised(self, expected: Any) -> None:
        if self._error is None:
            assert self._decided is not None
            raise AssertionError(f"decided was {list(self._decided.events)}, instead of raising {expected!r}")
        if isinstance(expected, type):
            if not isinstance(self._error, expected):
                raise self._error
        elif type(self._error) is not type(expected):
            raise self._error
        else:
            assert self._error.args == expected.args, f"raised was {self._error!r}, not {expected!r}"


def _drive(log: list[SequencedEvent], course: Course[Decided]) -> Decided:
    """Take the steps of a decision on a list of events."""
    try:
        step = next(course)
        while True:
            try:
                outcome = _take(log, step)
            except FencepostError as error:
                step = course.throw(error)
            else:
                step = course.send(outcome)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]


def _take(log: list[SequencedEvent], step: object) -> Any:
    if isinstance(step, Read):
        upto = len(log) if step.upto is None else step.upto
        return [event for event in log[step.after : upto] if matches(event, step.query)], upto
    if isinstance(step, Append):
        earlier = [event.position for event in log if step.unless is not None and matches(event, step.unless)]
        return Placed(earlier[0], earlier[0], already=True) if earlier else _append(log, step.events)
    if isinstance(step, Await):
        return asyncio.run(_awaited(step))
    # Nobody else appends to the list, so there is no conflict after which to wait.
    assert not isinstance(step, Sleep)
    raise AssertionError(f"a decision without snapshots takes no step {step!r}")


async def _awaited(step: Await) -> Any:
    return await step.awaitable


def _append(log: list[SequencedEvent], events: Iterable[Event]) -> Placed:
    first = len(log) + 1
    for position, event in enumerate(events, start=first):
        log.append(SequencedEvent(position, event.type, event.tags, event.data, now(), event.id, event.metadata))
    return Placed(first, len(log))


def _flat(events: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for event in events:
        if isinstance(event, (list, tuple)):
            flat.extend(event)
        else:
            flat.append(event)
    return flat


def _is_error(expected: object) -> bool:
    return isinstance(expected, BaseException) or (isinstance(expected, type) and issubclass(expected, BaseException))
