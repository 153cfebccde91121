"""The decorator `@decision`: turns a rule into a function that reads, decides, appends and retries.

    @decision
    def withdraw(balance: Balance, *, withdrawal_id: str, amount: int) -> WithdrawalMade:
        if balance.amount < amount:
            raise InsufficientFunds(balance.amount)
        return WithdrawalMade(balance.wallet_id, withdrawal_id, amount)

    withdraw(store, Balance("w1"), withdrawal_id="x", amount=50)

The rule is called with its projections folded up to one head. The events that it returns are appended under the
condition that no event in the boundary of its projections was stored after that head. On a conflict the rule is called
again with the new events applied. So a decision is stored only if everything that it was based on is still true.
Projections annotated `Unchecked[...]` are read but not checked.

tests/typed checks what mypy and pyright see of these types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Final, Generic, Never, ParamSpec, TypeAlias, TypeVar, overload

from ..aio import AsyncEventStore
from .annotations import visible_names
from .errors import DefinitionError
from .execution import Decided, Execution, Parameters, declarations, hints_of, is_unchecked
from .once import Once, OnceArgument, given_arguments, name_of, resolve_once
from .retry import Retry
from .snapshots import Awaited, Blocking, Cached
from .steps import Steps, check_store, run_steps, run_steps_async

P = ParamSpec("P")
E = TypeVar("E")
F = TypeVar("F")
E_co = TypeVar("E_co", covariant=True)

Deciding: TypeAlias = Coroutine[Any, Any, Decided[E_co]]


class Decision(Generic[P, E_co]):
    """A rule that can be called with a store. Made by `@decision`."""

    def __init__(
        self,
        function: Callable[P, Any],
        name: str | None,
        once: Callable[..., OnceArgument] | None,
        retry: Retry,
        visible: Mapping[str, Any],
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name_of(function) if name is None else name
        self.retry = retry
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameters = Parameters(function)
        hints = hints_of(function, visible)
        self.unchecked = {name for name, hint in hints.items() if is_unchecked(hint)}
        self.returned = {each.type: each for each in declarations(hints.get("return"))}
        self._once = once
        self._once_given: OnceArgument | None = None
        self._once_names = () if once is None else tuple(inspect.signature(once).parameters)
        unknown = set(self._once_names) - self.parameters.defaults.keys()
        if unknown:
            raise DefinitionError(
                f"{self.name}: the parameters {sorted(unknown)} of once are not parameters of the decision"
            )

    # Python's type system cannot add a keyword to a ParamSpec. With `once=`, type checkers therefore check only the
    # result; for `decide.once(...)(...)` they check the arguments, too.
    @overload
    def __call__(self, store: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Decided[E_co]: ...
    @overload
    def __call__(self, store: Awaited, /, *args: P.args, **kwargs: P.kwargs) -> Deciding[E_co]: ...
    @overload
    def __call__(self, store: Blocking, /, *args: Any, once: OnceArgument, **kwargs: Any) -> Decided[E_co]: ...
    @overload
    def __call__(self, store: Awaited, /, *args: Any, once: OnceArgument, **kwargs: Any) -> Deciding[E_co]: ...
    @overload
    def __call__(self, store: Blocking, /, *args: Any, checkpoint: tuple[str, int], **kwargs: Any) -> Decided[E_co]: ...
    @overload
    def __call__(self, store: Awaited, /, *args: Any, checkpoint: tuple[str, int], **kwargs: Any) -> Deciding[E_co]: ...
    def __call__(self, store: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Take the decision on the store. `once=` makes it idempotent: a command id or `having(...)`.

        `checkpoint=(name, position)` is stored together with the events, or alone if there are no events. It must grow.
        """
        cached = None
        if isinstance(store, Cached):
            cached, store = store, store.store
        check_store(store, self.name)
        steps = self.steps(args, kwargs, cached)
        return run_steps_async(store, steps) if isinstance(store, AsyncEventStore) else run_steps(store, steps)

    def once(self, given: OnceArgument, /) -> Decision[P, E_co]:
        """A copy of the decision that is taken once per command id or event: `decide.once("c-1")(store, ...)`."""
        decision = copy(self)
        decision._once_given = given
        return decision

    def with_retry(self, retry: Retry) -> Decision[P, E_co]:
        """A copy of the decision with another `Retry`."""
        decision = copy(self)
        decision.retry = retry
        return decision

    def steps(self, args: tuple[Any, ...], kwargs: dict[str, Any], cached: Cached[Any] | None) -> Steps[Decided[E_co]]:
        """The call as a generator of steps, for `run_steps` or another driver."""
        return Execution(self, cached, kwargs.pop("checkpoint", None)).steps(args, kwargs)

    def once_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Once | None:
        """The `Once` of this call, if any. Removes `once` from the keyword arguments."""
        given: OnceArgument | None = kwargs.pop("once", None)
        if given is None:
            given = self._once_given
        if given is None and self._once is not None:
            value = self.parameters.value
            given = self._once(**{name: value(name, args, kwargs) for name in self._once_names})
        if given is None or isinstance(given, Once):
            return given
        return resolve_once(given, self.name, lambda: given_arguments(self.parameters.signature, args, kwargs))


@dataclass(frozen=True)
class DecisionDecorator:
    """The decorator `decision`, with or without options."""

    name: str | None = None
    once: Callable[..., OnceArgument] | None = None
    retry: Retry | None = None

    # One overload per return type of the rule: None, a tuple of two events, a sequence, an event; the same for async.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, None]], /) -> Decision[P, Never]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, tuple[E, F]]], /) -> Decision[P, E | F]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Sequence[E] | Iterator[E] | None]], /
    ) -> Decision[P, E]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, E | None]], /) -> Decision[P, E]: ...
    @overload
    def __call__(self, function: Callable[P, None], /) -> Decision[P, Never]: ...
    @overload
    def __call__(self, function: Callable[P, tuple[E, F]], /) -> Decision[P, E | F]: ...
    @overload
    def __call__(self, function: Callable[P, Sequence[E] | Iterator[E] | None], /) -> Decision[P, E]: ...
    @overload
    def __call__(self, function: Callable[P, E | None], /) -> Decision[P, E]: ...
    @overload
    def __call__(
        self, /, *, name: str | None = None, once: Callable[..., OnceArgument] | None = None, retry: Retry | None = None
    ) -> DecisionDecorator: ...
    def __call__(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        once: Callable[..., OnceArgument] | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Turn a rule, a function of projections and other arguments, into a `Decision`.

        The rule returns an event, several events or None, or raises. `once` makes the decision idempotent. It is a
        function of some of the rule's parameters, by name, that identifies the events of an earlier call:
        `once=lambda withdrawal_id: having(WithdrawalMade, withdrawal_id=withdrawal_id)`. A call can pass `once=` itself
        instead, with the same or a command id. `name` is the name that command ids belong to, by default the full name
        of the function.
        """
        if function is None:
            return DecisionDecorator(name, once, retry)
        return Decision(function, self.name, self.once, self.retry or Retry(), visible_names(1))


decision: Final = DecisionDecorator()
