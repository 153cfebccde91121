"""Observers: callables that are notified of what happens in a store, for metrics, traces and logs.

    with observe(print, of=store):
        withdraw(store, Balance("w1"), amount=50)

A part of the package that has something to report declares a subclass of `Observation`, and calls `notify` with the
subject of the observation, such as a store. An observer is registered for one subject or for all of them. It runs in
the thread or on the event loop of the work that it observes, so it must be quick and must not block. If it raises an
error, the error is logged and the work goes on.

Without observers the cost is one call of `has_observers()`. tests/unit/test_observing.py holds this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from .errors import InvalidInput

log = logging.getLogger(__name__)
# Every logger of the package is silent unless the program sets up logging.
logging.getLogger("fencepost").addHandler(logging.NullHandler())


class Observation:
    """The base class of all observations."""

    __slots__ = ()


Observer: TypeAlias = Callable[[Observation], None]

_changing: Final = Lock()
_of_all: tuple[Observer, ...] = ()
_of_one: Final[WeakKeyDictionary[object, tuple[Observer, ...]]] = WeakKeyDictionary()


class Observing:
    """The registration of an observer. It ends with `stop()`, or at the end of a `with` block."""

    def __init__(self, observer: Observer, of: object | None) -> None:
        self._observer = observer
        self._of = of

    def stop(self) -> None:
        """Stop notifying the observer. Idempotent."""
        global _of_all
        with _changing:
            if self._of is None:
                _of_all = _without(_of_all, self._observer)
            else:
                left = _without(_of_one.get(self._of, ()), self._observer)
                if left:
                    _of_one[self._of] = left
                else:
                    _of_one.pop(self._of, None)
            self._observer = _no_observer

    def __enter__(self) -> Observing:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def observe(observer: Observer, *, of: object | None = None) -> Observing:
    """Notify the observer of what happens in the store `of` or, without one, in every store of the process."""
    global _of_all
    if not callable(observer):
        raise InvalidInput("observer", f"a callable is needed, not {type(observer).__name__}")
    with _changing:
        if of is None:
            _of_all = (*_of_all, observer)
        else:
            _of_one[of] = (*_of_one.get(of, ()), observer)
    return Observing(observer, of)


def has_observers() -> bool:
    """Whether any observer is registered. If not, no observation needs to be created."""
    return bool(_of_all or _of_one)


def notify(subject: object, observation: Observation) -> None:
    """Call the observers of the subject, and the observers of all subjects.

    A subject that stands for another one, as a `Reaction` stands for a store, names that one as `observed_as`.
    """
    subject = getattr(subject, "observed_as", subject)
    for observer in (*_of_all, *_of_one.get(subject, ())):
        try:
            observer(observation)
        except Exception:
            log.exception("the observer %r failed with %r", observer, observation)


def _without(observers: tuple[Observer, ...], observer: Observer) -> tuple[Observer, ...]:
    """The observers without one registration of this observer, which may be registered several times."""
    left = list(observers)
    if observer in left:
        left.remove(observer)
    return tuple(left)


def _no_observer(observation: Observation) -> None:
    """Replaces an observer whose registration has ended."""
