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

from ..aio import AsyncEventStore
from ..consumers import (
    CommandRefused,
    ConsumerStatus,
    DeadLetter,
    NoSuchConsumer,
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
from ..errors import InvalidInput
from ..model import checked_position
from ..store import EventStore
from ..wire.documents import document_of, parsed
from ..wire.positions import WirePosition, from_wire, to_wire
from ..wire.problems import COMMAND_REFUSED, NO_SUCH_CONSUMER
from . import metrics
from .access import Access, Right
from .messages import Answer, Refused, Request, answer_json
from .metrics import Metrics
from .settings import Settings

Result = TypeVar("Result")
Document = TypeVar("Document")

FRESH_S: Final = 2.0  # how long the status is kept for metrics
MAX_BY_CHARACTERS: Final = 200
WHAT: Final = "the state of consumers"


class CommandDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A command without options. `by` says who gives it, beside the name of the API key."""

    by: str = ""


class PauseDocument(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""
    by: str = ""


class StepDocument(msgspec.Struct, forbid_unknown_fields=True):
    """`partition` is needed for a consumer with partitions."""

    partition: int | None = None
    by: str = ""


class RepartitionDocument(msgspec.Struct, forbid_unknown_fields=True):
    """In how many partitions the events are split, and by the values of which tag."""

    partitions: int
    key: str | None = None
    by: str = ""


class ResetDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Where to begin again: after a position, or with the events that were recorded since a time."""

    position: WirePosition | None = None
    time: datetime | None = None
    by: str = ""


class LettersDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters: these positions, or all."""

    positions: list[WirePosition] = []
    all: bool = False
    by: str = ""


class ConsumerHandlers:
    def __init__(self, store: AsyncEventStore, settings: Settings) -> None:
        self._store = store.blocking
        self._settings = settings
        self._known: list[ConsumerStatus] = []
        self._known_at = -FRESH_S
        self._looking = asyncio.Lock()

    async def statuses(self, request: Request, access: Access) -> Answer:
        """The status of every consumer whose records are in the store."""
        access.check(Right.READ)
        access.check_unlimited(WHAT)
        found = await self._run(lambda store: status(store))
        return answer_json({"consumers": [status_document(each) for each in found]})

    async def show(self, request: Request, access: Access) -> Answer:
        access.check(Right.READ)
        access.check_unlimited(WHAT)
        name = request.places["name"]
        (found,) = await self._run(lambda store: status(store, [name]))
        return answer_json(status_document(found))

    async def pause(self, request: Request, access: Access) -> Answer:
        given = await self._command(request, access, PauseDocument)
        by, name = author(access, given.by), request.places["name"]
        changed = await self._run(lambda store: pause(store, name, by=by, reason=given.reason))
        return answer_json({"consumer": name, "changed": changed})

    async def resume(self, request: Request, access: Access) -> Answer:
        given = await self._command(request, access, CommandDocument)
        by, name = author(access, given.by), request.places["name"]
        changed = await self._run(lambda store: resume(store, name, by=by))
        return answer_json({"consumer": name, "changed": changed})

    async def step(self, request: Request, access: Access) -> Answer:
        given = await self._command(request, access, StepDocument)
        by, name = author(access, given.by), request.places["name"]
        await self._run(lambda store: step(store, name, partition=given.partition, by=by))
        return answer_json({"consumer": name, "changed": True})

    async def repartition(self, request: Request, access: Access) -> Answer:
        """Split the events of the consumer in another way."""
        given = await self._command(request, access, RepartitionDocument)
        by, name = author(access, given.by), request.places["name"]
        changed = await self._run(
            lambda store: repartition(store, name, partitions=given.partitions, key=given.key, by=by)
        )
        return answer_json({"consumer": name, "changed": changed})

    async def reset(self, request: Request, access: Access) -> Answer:
        """Have the consumer handle events again."""
        given = await self._command(request, access, ResetDocument)
        if (given.position is None) == (given.time is None):
            raise InvalidInput("position", "either position or time is needed")
        if given.time is not None and given.time.tzinfo is None:
            raise InvalidInput("time", "a time zone is needed, for example 2026-01-31T09:00:00Z")
        wanted = None if given.position is None else checked_position(from_wire(given.position, "position"), "position")
        by, name = author(access, given.by), request.places["name"]

        def command(store: EventStore) -> int:
            status(store, [name])  # an unknown name is refused before the log is read
            return reset(store, name, position=wanted or 0, to=given.time, by=by)

        return answer_json({"consumer": name, "position": to_wire(await self._run(command))})

    async def letters(self, request: Request, access: Access) -> Answer:
        """The events that the consumer has set aside."""
        access.check(Right.READ)
        access.check_unlimited(WHAT)
        found = await self._run(lambda store: dead_letters(store, request.places["name"]))
        return answer_json({"dead_letters": [letter_document(each) for each in found]})

    async def letter(self, request: Request, access: Access) -> Answer:
        """A dead letter with its event."""
        access.check(Right.READ)
        access.check_unlimited(WHAT)
        name, position = request.places["name"], from_wire(request.places["position"], "position")

        def found(store: EventStore) -> dict[str, Any]:
            for each in dead_letters(store, name):
                if each.position == position:
                    events = list(store.read(after=position - 1, upto=position))
                    # A consumer may follow another store than the one that holds its records.
                    return {**letter_document(each), "event": document_of(events[0]) if events else None}
            raise CommandRefused(f"consumer {name!r} has no dead letter at position {position}")

        return answer_json(await self._run(found))

    async def replay(self, request: Request, access: Access) -> Answer:
        given = await self._command(request, access, LettersDocument)
        by, name, positions = author(access, given.by), request.places["name"], chosen(given)
        count = await self._run(lambda store: replay(store, name, positions, by=by))
        return answer_json({"consumer": name, "requested": count})

    async def discard(self, request: Request, access: Access) -> Answer:
        given = await self._command(request, access, LettersDocument)
        by, name, positions = author(access, given.by), request.places["name"], chosen(given)
        count = await self._run(lambda store: discard(store, name, positions, by=by))
        return answer_json({"consumer": name, "discarded": count})

    async def known(self) -> list[ConsumerStatus]:
        """The status of every consumer, at most 2 seconds old; for metrics."""
        async with self._looking:
            if monotonic() - self._known_at >= FRESH_S:
                self._known = await self._run(lambda store: status(store))
                self._known_at = monotonic()
        return self._known

    async def _command(self, request: Request, access: Access, kind: type[Document]) -> Document:
        access.check(Right.ADMIN)
        access.check_unlimited(WHAT)
        limit, timeout_s = self._settings.max_body_bytes, self._settings.request_timeout_s
        return parsed(await request.body(limit=limit, timeout_s=timeout_s) or b"{}", kind)

    async def _run(self, call: Callable[[EventStore], Result]) -> Result:
        try:
            return await asyncio.to_thread(call, self._store)
        except NoSuchConsumer as error:
            raise Refused(NO_SUCH_CONSUMER, str(error)) from None
        except CommandRefused as error:
            raise Refused(COMMAND_REFUSED, str(error)) from None


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
