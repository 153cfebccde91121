"""Consumers over HTTP: their status, and the commands that `fencepost consumers` has.

Everything is read from the records in the store, so the server needs none of the programs that consume. A command is
recorded with the name of the API key that gave it, and with the person that the request names in `by`. Reading needs
the right `read`, a command the right `admin`. A key with a scope is refused, because the records and the lag of a
consumer concern the whole store. tests/server/test_consumers.py holds this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from .. import EventStore
from ..aio import AsyncEventStore
from ..consumers import (
    CommandRefused,
    ConsumerStatus,
    DeadLetter,
    NoSuchConsumer,
    dead_letter,
    dead_letters,
    discard,
    pause,
    repartition,
    replay,
    reset,
    resume,
    status,
    step,
)
from ..engine import checked_position
from ..errors import InvalidInput
from ..tools import WirePosition, document_of, from_wire, to_wire
from . import metrics
from .access import Access, Right
from .admission import Refused
from .metrics import Metrics
from .request import Answer, Request, answer_json
from .routes import Handler
from .wire.documents import parsed
from .wire.problems import COMMAND_REFUSED, NO_SUCH_CONSUMER

Result = TypeVar("Result")

FRESH_S: Final = 2.0  # how long the status is kept for metrics
MAX_BY_CHARACTERS: Final = 200


class CommandDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A command without options. `by` says who gives it, beside the name of the API key."""

    by: str = ""


class PauseDocument(CommandDocument):
    reason: str = ""


class StepDocument(CommandDocument):
    """`partition` is needed for a consumer with partitions."""

    partition: int | None = None


class RepartitionDocument(CommandDocument, kw_only=True):
    """In how many partitions the events are split, and by the values of which tag."""

    partitions: int
    key: str | None = None


class ResetDocument(CommandDocument):
    """Where to begin again: after a position, or with the events that were recorded since a time."""

    position: WirePosition | None = None
    time: datetime | None = None


class LettersDocument(CommandDocument):
    """Which dead letters: these positions, or all."""

    positions: list[WirePosition] = []
    all: bool = False


def _step(store: EventStore, name: str, given: StepDocument, by: str) -> dict[str, Any]:
    step(store, name, partition=given.partition, by=by)
    return {"changed": True}


def _repartition(store: EventStore, name: str, given: RepartitionDocument, by: str) -> dict[str, Any]:
    return {"changed": repartition(store, name, partitions=given.partitions, key=given.key, by=by)}


def _reset(store: EventStore, name: str, given: ResetDocument, by: str) -> dict[str, Any]:
    if (given.position is None) == (given.time is None):
        raise InvalidInput("position", "either position or time is needed")
    if given.time is not None and given.time.tzinfo is None:
        raise InvalidInput("time", "a time zone is needed, for example 2026-01-31T09:00:00Z")
    wanted = 0 if given.position is None else checked_position(from_wire(given.position, "position"), "position")
    status(store, [name])  # an unknown name is refused before the log is read
    return {"position": to_wire(reset(store, name, position=wanted, to=given.time, by=by))}


# For each command its path below that of the consumer, what a client sends, and what gives the command and makes the
# answer. It gets the store, the name of the consumer, what was sent, and who gives the command.
COMMANDS: Final[dict[str, tuple[type[CommandDocument], Callable[[EventStore, str, Any, str], dict[str, Any]]]]] = {
    "pause": (
        PauseDocument,
        lambda store, name, given, by: {"changed": pause(store, name, by=by, reason=given.reason)},
    ),
    "resume": (CommandDocument, lambda store, name, given, by: {"changed": resume(store, name, by=by)}),
    "step": (StepDocument, _step),
    "repartition": (RepartitionDocument, _repartition),
    "reset": (ResetDocument, _reset),
    "dead-letters/replay": (
        LettersDocument,
        lambda store, name, given, by: {"requested": replay(store, name, chosen(given), by=by)},
    ),
    "dead-letters/discard": (
        LettersDocument,
        lambda store, name, given, by: {"discarded": discard(store, name, chosen(given), by=by)},
    ),
}


class ConsumerHandlers:
    def __init__(self, store: AsyncEventStore) -> None:
        self._store = store.blocking
        self._known: list[ConsumerStatus] = []
        self._known_at = -FRESH_S
        self._looking = asyncio.Lock()

    async def statuses(self, request: Request, access: Access) -> Answer:
        """The status of every consumer whose records are in the store."""
        check(access, Right.READ)
        found = await self._run(status)
        return answer_json({"consumers": [status_document(each) for each in found]})

    async def show(self, request: Request, access: Access) -> Answer:
        check(access, Right.READ)
        (found,) = await self._run(status, [request.places["name"]])
        return answer_json(status_document(found))

    async def letters(self, request: Request, access: Access) -> Answer:
        """The events that the consumer has set aside."""
        check(access, Right.READ)
        found = await self._run(dead_letters, request.places["name"])
        return answer_json({"dead_letters": [letter_document(each) for each in found]})

    async def letter(self, request: Request, access: Access) -> Answer:
        """A dead letter with its event."""
        check(access, Right.READ)
        name, position = request.places["name"], from_wire(request.places["position"], "position")

        def found(store: EventStore) -> dict[str, Any]:
            letter = dead_letter(store, name, position)
            events = list(store.read(after=position - 1, up_to=position))
            # A consumer may follow another store than the one that holds its records.
            return {**letter_document(letter), "event": document_of(events[0]) if events else None}

        return answer_json(await self._run(found))

    def command(self, path: str) -> Handler:
        """The handler of a command, by its key in `COMMANDS`."""
        kind, give = COMMANDS[path]

        async def handle(request: Request, access: Access) -> Answer:
            check(access, Right.ADMIN)
            given = parsed(await request.optional_body(), kind)
            name = request.places["name"]
            return answer_json({"consumer": name, **await self._run(give, name, given, author(access, given.by))})

        return handle

    async def known(self) -> list[ConsumerStatus]:
        """The status of every consumer, at most 2 seconds old; for metrics."""
        async with self._looking:
            if monotonic() - self._known_at >= FRESH_S:
                self._known = await self._run(status)
                self._known_at = monotonic()
        return self._known

    async def _run(self, call: Callable[..., Result], *args: Any) -> Result:
        try:
            return await asyncio.to_thread(call, self._store, *args)
        except NoSuchConsumer as error:
            raise Refused(NO_SUCH_CONSUMER, str(error)) from None
        except CommandRefused as error:
            raise Refused(COMMAND_REFUSED, str(error)) from None


def check(access: Access, right: Right) -> None:
    access.check(right)
    access.check_unlimited("the state of consumers")


def measure_consumers(found: list[ConsumerStatus], measured: Metrics) -> None:
    """Replace what the metrics say about consumers."""
    for metric in metrics.METRICS:
        if metric.labels[:1] == ("consumer",):
            measured.clear(metric)
    for each in found:
        name = each.name
        measured.set(metrics.CONSUMER_STATE, 1, name, each.state)
        measured.set(metrics.CONSUMER_POSITION, each.position, name)
        measured.set(metrics.CONSUMER_LAG, each.lag_events, name)
        measured.set(metrics.CONSUMER_LAG_SECONDS, each.lag_s, name)
        measured.set(metrics.CONSUMER_RATE, each.throughput_per_s, name)
        measured.set(metrics.CONSUMER_LETTERS, each.dead_letters, name)
        if each.heartbeat_age_s is not None:
            measured.set(metrics.CONSUMER_HEARTBEAT, each.heartbeat_age_s, name)
        if each.error_age_s is not None:
            measured.set(metrics.CONSUMER_ERROR, each.error_age_s, name)


def author(access: Access, given: str) -> str:
    """Who gives a command, as it is recorded: the API key cannot be left out, the person is what the client says."""
    if len(given) > MAX_BY_CHARACTERS:
        raise InvalidInput("by", f"{len(given)} characters, the limit is {MAX_BY_CHARACTERS}")
    key = f"API key {access.name}" if access.name else "HTTP"
    return f"{given} ({key})" if given else key


def chosen(given: LettersDocument) -> tuple[int, ...]:
    """The positions; none of them stands for all dead letters."""
    if bool(given.positions) == given.all:
        raise InvalidInput("positions", 'at least 1 position is needed, or "all": true')
    return tuple(from_wire(each, f"positions[{index}]") for index, each in enumerate(given.positions))


def status_document(found: ConsumerStatus) -> dict[str, Any]:
    return {**wired(msgspec.to_builtins(found)), "healthy": found.healthy}


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    return wired(msgspec.to_builtins(letter))


def wired(document: dict[str, Any]) -> dict[str, Any]:
    """Numbers that JSON programs would round, as text."""
    made: dict[str, Any] = {}
    for name, value in document.items():
        made[name] = [wired(each) for each in value] if name == "partitions" else value
        if type(value) is int:
            made[name] = to_wire(value)
    return made
