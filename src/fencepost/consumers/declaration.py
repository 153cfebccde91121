"""`consumer`: a name, the handlers, the target and the rules for failures, declared once.

    @consumer("occupancy", into="views.db")
    def occupancy(event: StudentSubscribed, tx: sqlite3.Connection) -> None:
        tx.execute("UPDATE course SET taken = taken + 1 WHERE course_id = ?", (event.course_id,))

A declaration opens nothing and starts nothing: `run` does. The name identifies the consumer in the store, so it
must stay the same when the code changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal, ParamSpec, TypeVar

from .. import Query, SequencedEvent
from ..decisions import DefinitionError
from ..decisions.inspection import visible_names
from ..engine import checked_name
from ..errors import InvalidInput
from .event_handlers import EventHandler, Handlers
from .partitions import checked_division
from .sessions import Session

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made", bound="Consumer")
Options = ParamSpec("Options")
OnFailure = Literal["stop", "set aside"]

BATCH: Final = 1_000
LEASE_S: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What happens when a handler raises or takes too long.

    The event is tried `attempts` times. Between two attempts the consumer waits `base_s`, then twice that, and so on up
    to `cap_s`. After the last attempt the consumer stops, or sets the event aside as a dead letter and goes on. With
    `key`, the name of a tag, later events with the same value of that tag are set aside, too, so that their order is
    kept. An attempt is given up after `timeout_s`.
    """

    attempts: int = 5
    base_s: float = 0.1
    cap_s: float = 30.0
    then: OnFailure = "stop"
    key: str | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidInput("attempts", f"at least 1 is needed, not {self.attempts}")
        if not 0 <= self.base_s <= self.cap_s:
            raise InvalidInput("base_s", f"{self.base_s} is not between 0 and cap_s, which is {self.cap_s}")
        if self.then not in ("stop", "set aside"):
            raise InvalidInput("then", f"'stop' or 'set aside', not {self.then!r}")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InvalidInput("timeout_s", f"more than 0 seconds are needed, not {self.timeout_s}")

    def wait_s(self, attempt: int) -> float:
        """How long to wait after the given attempt, counted from 1."""
        return min(self.cap_s, self.base_s * float(2 ** min(attempt - 1, 32)))

    def keys_of(self, event: SequencedEvent) -> tuple[str, ...]:
        """The tags of the event that its order is kept by."""
        if self.key is None:
            return ()
        return tuple(sorted(each for each in event.tags if each.startswith(f"{self.key}:")))


class Consumer:
    """A declared consumer. Made by `consumer`; `run`, `start` and `run_async` run it. Tests may call its first handler.

    `into` is where its effects and its checkpoint go: the path of an SQLite file or the URL of a PostgreSQL database,
    a connection of `sqlite3` or `psycopg`, a function that opens one, or an engine of SQLAlchemy. Then each batch of
    events is handled in one transaction together with the checkpoint, so that effects there happen exactly once. With
    an `EventStore`, or without `into`, the checkpoint is kept in that store or in the store that is read. Then the
    handler runs at least once for each event, and exactly once if it makes its changes with one append of the
    `Reaction` that it gets as the transaction.

    With `partitions`, that many workers, in threads, processes and machines, share the events of the consumer. Events
    that have the same value of the tag `key` are handled one after another, in order. Handlers run in several threads
    at once.
    """

    worker: Any = None  # the class that handles its events, if it is not `Worker`

    def __init__(
        self,
        name: str,
        *,
        into: Any = None,
        tags: Iterable[str] = (),
        batch: int = BATCH,
        lease_s: float = LEASE_S,
        start_after: int = 0,
        failures: Failures | None = None,
        partitions: int = 1,
        key: str | None = None,
    ) -> None:
        checked_name(name, "consumer")
        if "#" in name or name.startswith("fencepost."):
            raise InvalidInput("consumer", f"{name!r}: a name has no # and does not begin with 'fencepost.'")
        if batch < 1:
            raise InvalidInput("batch", f"at least 1 is needed, not {batch}")
        if lease_s < 0.5:
            raise InvalidInput("lease_s", f"at least 0.5 seconds are needed, not {lease_s}")
        if start_after < 0:
            raise InvalidInput("start_after", f"a position from 0 on is needed, not {start_after}")
        self.name = name
        self.into = into
        self.batch = batch
        self.lease_s = lease_s
        self.start_after = start_after
        self.failures = Failures() if failures is None else failures
        self.division = checked_division(partitions, key)
        if key is not None and self.failures.key not in (None, key):
            raise InvalidInput(
                "failures.key",
                f"with partitions, order is kept by the tag {key!r} only, so events cannot be held back by the tag "
                f"{self.failures.key!r}; give {key!r} or None",
            )
        self._tags = frozenset(tags)
        self.handlers = Handlers(f"consumer {name!r}")
        self._first: Callable[..., Any] | None = None

    def on(self, function: Function, /) -> Function:
        """Declare another handler of this consumer."""
        self._add(function, visible_names(1))
        return function

    def _add(self, function: Callable[..., Any], visible: dict[str, Any]) -> None:
        self.handlers.add(EventHandler(function, visible))
        if self._first is None:
            self._first = function

    @property
    def query(self) -> Query:
        """Every event that has a handler."""
        if self._first is None:
            raise DefinitionError(f"consumer {self.name!r} has no handler")
        return self.handlers.query(self._tags)

    def session(self) -> Session:
        """What handles events under one lease. Called by the runner."""
        return Session(self.handlers)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._first is None:
            raise DefinitionError(f"consumer {self.name!r} has no handler")
        return self._first(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<consumer {self.name!r}>"


def declares(kind: Callable[Options, Made]) -> Callable[Options, Callable[[Callable[..., Any]], Made]]:
    """A decorator with the options of this kind of consumer: a function becomes the first handler of a new one."""

    @wraps(kind, updated=())
    def with_options(*args: Options.args, **options: Options.kwargs) -> Callable[[Callable[..., Any]], Made]:
        visible = visible_names(1)

        def declare(function: Callable[..., Any]) -> Made:
            made = kind(*args, **options)
            made._add(function, visible)
            return made

        return declare

    return with_options


consumer = declares(Consumer)
