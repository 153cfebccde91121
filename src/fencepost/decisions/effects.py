"""Effects: calls to other systems that are made once, even if a decision is retried.

A conflict makes a decision call its rule again, with every call that the rule makes. Charging a card twice is a
mistake, so a decision that needs an effect takes it as an argument:

    pay(store, Order("o1"), charge=Effect(lambda: gateway.charge(...)))

The call is made when the rule first calls the effect; later attempts get the same result. With `again=True` every
attempt makes the call. A crash between the effect and the append can still separate the two; use an outbox for effects
that must survive a crash.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Effect(Generic[Result]):
    """A call that is made at most once, however often the decision is retried. Make a new one for each decision."""

    def __init__(self, call: Callable[[], Result], *, again: bool = False) -> None:
        self._call = call
        self._again = again
        self._repeat: Callable[[], Any] | None = None

    def __call__(self) -> Result:
        if self._repeat is not None and not self._again:
            return self._repeat()  # type: ignore[no-any-return]
        result: Any = self._call()
        if inspect.isawaitable(result):
            return self._awaited(result)  # type: ignore[return-value]
        self._repeat = lambda: result
        return result  # type: ignore[no-any-return]

    async def _awaited(self, result: Any) -> Any:
        value = await result

        async def repeat() -> Any:
            return value

        self._repeat = repeat
        return value
