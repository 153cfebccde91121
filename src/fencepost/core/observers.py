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
from weakref import WeakKeyDictionary, ref

from ..errors import InvalidInput

log = logging.getLogger(__name__)
# Every logger of the package is silent unless the program sets up logging.
logging.getLogger("fencepost").addHandler(logging.NullHandler())


class Observation:
    """The base class of all observations."""

    __slots__ = ()


Observer: TypeAlias = Callable[[Observation], None]

_changing: Final = Lock()
_observers: Final[WeakKeyDictionary[object, tuple[Registration, ...]]] = WeakKeyDictionary()


class Registration:
    """The registration of an observer. It ends with `stop()`, or at the end of a `with` block."""

    def __init__(self, observer: Observer, subject: object) -> None:
        self.observer = observer
        self._subject = ref(subject)  # a registration must not keep a store alive

    def stop(self) -> None:
        """Stop notifying the observer. Idempotent."""
        subject = self._subject()
        if subject is None:
            return
        with _changing:
            left = tuple(each for each in _observers.get(subject, ()) if each is not self)
            if left:
                _observers[subject] = left
            else:
                _observers.pop(subject, None)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class AllStores:
    """What an observer of every store is registered for."""


_ALL_STORES: Final = AllStores()


def observe(observer: Observer, *, of: object | None = None) -> Registration:
    """Notify the observer of what happens in the store `of` or, without one, in every store of the process."""
    if not callable(observer):
        raise InvalidInput("observer", f"a callable is needed, not {type(observer).__name__}")
    subject = _ALL_STORES if of is None else of
    registration = Registration(observer, subject)
    with _changing:
        _observers[subject] = (*_observers.get(subject, ()), registration)
    return registration


def has_observers() -> bool:
    """Whether any observer is registered. If not, no observation needs to be created."""
    return bool(_observers)


def notify(subject: object, observation: Observation) -> None:
    """Call the observers of the subject, and the observers of all subjects.

    A subject that stands for another one, as a `Reaction` stands for a store, names that one as `observed_as`.
    """
    subject = getattr(subject, "observed_as", subject)
    for registration in (*_observers.get(_ALL_STORES, ()), *_observers.get(subject, ())):
        try:
            registration.observer(observation)
        except Exception:
            log.exception("the observer %r failed with %r", registration.observer, observation)
