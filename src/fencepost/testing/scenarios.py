"""Given, when, then: a decision as a sentence, without a store.

    given(WalletOpened("w1", "Ada", 100))
        .when(withdraw, Balance("w1"), withdrawal_id="x", amount=50)
        .then(WithdrawalMade("w1", "x", 50))

The given events are encoded by their codecs. The decision runs the same steps as on a store; a list of events takes the
place of the log for its reads and its append. So a decision sees only the events in its boundary here, too. Events are
checked as for a store, also those that `then` expects: tests/decisions/test_given.py.

A scenario without `then` proves nothing. It fails its test if pytest loads the plugin `fencepost_pytest`. Otherwise
Python reports it when it frees the scenario (`sys.unraisablehook`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from typing import Any

from ..buckets import matches
from ..decisions.contexts import clock, now
from ..decisions.decorator import Decision
from ..decisions.events import encode
from ..decisions.execution import Decided
from ..decisions.projections import Projection, fresh
from ..decisions.steps import AppendEvents, AwaitRule, Notify, ReadEvents, Sleep, perform
from ..model import Event, Placed, SequencedEvent

BEGINNING = datetime(2000, 1, 1, tzinfo=timezone.utc)


def given(*events: object) -> Given:
    """The events that have happened: typed ones, `Event`s, or lists of them."""
    return Given(events)


class Given:
    """A history, on which a decision can be tried."""

    def __init__(
        self, events: Iterable[object], moment: datetime | None = None, log: Iterable[SequencedEvent] = ()
    ) -> None:
        self._moment = moment
        self._log = list(log)
        with self._clock():
            _append_to(self._log, [encode(event) for event in _flatten(events)])

    def at(self, moment: datetime) -> Given:
        """The same history, decided upon at the given time by `now()`."""
        return Given((), moment, self._log)

    def and_(self, *events: object) -> Given:
        """More history; after `at`, recorded at that time."""
        return Given(events, self._moment, self._log)

    def when(self, decision: Decision[..., Any], /, *args: Any, **kwargs: Any) -> Then:
        """Take the decision. What it raises is kept for `then`, which must follow."""
        caller = sys._getframe(1)
        where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        log = list(self._log)
        with self._clock():
            try:
                decided = perform(decision.steps(args, kwargs, None), lambda step: _run_step(log, step))
            except Exception as error:
                return Then(None, error, where)
        return Then(decided, None, where)

    def then(self, projection: Projection, /, **state: Any) -> Given:
        """Nothing is decided: the history, as the projection sees it, has come to this state."""
        if not state:
            raise TypeError("then: name the fields to compare, as in .then(Balance('w1'), amount=70)")
        folded = fresh(projection)
        for event in self._log:
            folded.apply(event)
        actual = {name: getattr(folded, name) for name in state}
        assert actual == state, f"{folded!r} has {actual}, not {state}"
        return self

    def _clock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._moment is None else clock(self._moment)


class Then:
    """What came of a decision, to be compared with what should have."""

    def __init__(self, decided: Decided[Any] | None, error: Exception | None, where: str) -> None:
        self._decided = decided
        self._error = error
        self._where = where
        self._checked = False
        plugin: Any = sys.modules.get("fencepost_pytest")
        self._watched = plugin is not None and plugin.watch(self._missing_then)

    def _missing_then(self) -> str | None:
        if self._checked:
            return None
        return f"{self._where}: given(...).when(...) checks nothing; end it with .then(...) or .then_nothing()"

    def __del__(self) -> None:
        # Not where a plugin looks after it: the scenario of a test that has failed may be freed at any moment.
        forgotten = None if self._watched else self._missing_then()
        if forgotten is not None:
            raise AssertionError(forgotten)

    @property
    def decided(self) -> Decided[Any]:
        """The result; raises what the decision raised."""
        self._checked = True
        if self._error is not None:
            raise self._error
        assert self._decided is not None
        return self._decided

    def then(self, *expected: Any) -> Then:
        """The decision wrote exactly these events, or raised this error, given by class or by example."""
        self._checked = True
        if len(expected) == 1 and _is_error(expected[0]):
            self._then_raised(expected[0])
            return self
        decided = self.decided
        assert not decided.already, f"it was decided before, by {list(decided.events)}, and nothing was written"
        written, wanted = list(decided.events), _check_expected(expected)
        assert written == wanted, f"decided was {written}, not {wanted}"
        return self

    def then_nothing(self) -> Then:
        """The decision was for nothing: no event, no error."""
        return self.then()

    def then_already(self, *expected: Any) -> Then:
        """The decision was recognised as taken before, with these events, and wrote nothing."""
        decided = self.decided
        assert decided.already, f"it was decided now: {list(decided.events)}"
        earlier, wanted = list(decided.events), _check_expected(expected)
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


def _run_step(log: list[SequencedEvent], step: object) -> Any:
    if isinstance(step, ReadEvents):
        up_to = len(log) if step.up_to is None else step.up_to
        return [event for event in log[step.after : up_to] if matches(event, step.query)], up_to
    if isinstance(step, AppendEvents):
        earlier = [event.position for event in log if step.unless is not None and matches(event, step.unless)]
        return Placed(earlier[0], earlier[0], already=True) if earlier else _append_to(log, step.events)
    if isinstance(step, AwaitRule):
        return asyncio.run(_await_rule(step))
    if isinstance(step, Notify):
        return None  # a history is not a store, so it has no observers
    # No other client appends to the list, so there is no conflict after which to wait.
    assert not isinstance(step, Sleep)
    raise AssertionError(f"a decision without snapshots takes no step {step!r}")


async def _await_rule(step: AwaitRule) -> Any:
    return await step.awaitable


def _append_to(log: list[SequencedEvent], events: Iterable[Event]) -> Placed:
    first = len(log) + 1
    for position, event in enumerate(events, start=first):
        log.append(SequencedEvent(position, event.type, event.tags, event.data, now(), event.id, event.metadata))
    return Placed(first, len(log))


def _flatten(events: Iterable[Any]) -> list[Any]:
    return [each for event in events for each in (event if isinstance(event, (list, tuple)) else (event,))]


def _check_expected(events: Iterable[Any]) -> list[Any]:
    """The events, each of which could be stored: one that could not will never be decided."""
    flat = _flatten(events)
    for event in flat:
        if not isinstance(event, SequencedEvent):  # what a decision finds stored under a type that it does not know
            encode(event)
    return flat


def _is_error(expected: object) -> bool:
    return isinstance(expected, BaseException) or (isinstance(expected, type) and issubclass(expected, BaseException))
