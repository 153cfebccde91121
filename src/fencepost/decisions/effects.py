"""Effects: calls to other systems, made once though a decision is taken again.

A conflict makes a decision run again, with what it calls. Reading a state twice does no harm,
charging a card twice does. So a decision that needs an effect takes it as an argument:

    pay(store, Order("o1"), charge=effect(lambda: gateway.charge(...)))

The effect runs when the decision first calls it, and later attempts get what it returned. With
`again=True` each attempt makes the call anew. Only a crash between the effect and the append can
still separate the two; what must survive that belongs into an outbox.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Effect(Generic[Result]):
    """A call whose result is remembered. Made by `effect`; one for each call of a decision."""

    def __init__(self, call: Callable[[], Result], again: bool) -> None:
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


def effect(call: Callable[[], Result], *, again: bool = False) -> Effect[Result]:
    """Make the call at most once, however often the decision is retried."""
    return Effect(call, again)
