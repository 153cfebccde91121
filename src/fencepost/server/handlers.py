"""What each path of the interface does: checks access, narrows to the caller's scope, asks the store, answers.

A handler takes a request and the caller's `Access`, and returns an answer or raises. `app` turns what is raised into
problem+json. Requests in the msgpack form come from Fencepost's own client; both forms lead to the same calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from ..aio import AsyncEventStore
from ..core.judging import Append
from ..errors import CheckpointBehind, ConditionFailed, FencepostError, InvalidInput
from ..model import AppendCondition, Placed, Query, SequencedEvent
from ..wire import documents, rows
from ..wire.positions import from_wire, to_wire
from ..wire.problems import problem_of
from . import metrics
from .access import Access, Right
from .heads import Heads
from .messages import (
    NDJSON,
    Answer,
    Request,
    Stream,
    answer_json,
    answer_problem,
    number_parameter,
    position_parameter,
)
from .metrics import Metrics
from .observing import Observer
from .settings import Settings
from .streams import Streams

Decoded = TypeVar("Decoded")

PAGE_EVENTS: Final = 4_096
PAGE_BYTES: Final = 8_000_000  # of data in one page; at least one event is in it
MAX_BATCH_APPENDS: Final = 4_096


class Reading(NamedTuple):
    """The arguments of `read`, already narrowed to the caller's scope. Without a query, nothing can match."""

    query: Query | None
    after: int
    upto: int | None
    limit: int | None
    backwards: bool


@dataclass
class Handlers:
    _store: AsyncEventStore
    _heads: Heads
    _settings: Settings
    _metrics: Metrics
    _streams: Streams
    _observer: Observer

    async def append(self, request: Request, access: Access) -> Answer:
        access.check(Right.APPEND)
        document = documents.parsed(await request.body(), documents.AppendDocument)
        outcome = await self.place(access, documents.append_from(document))
        if isinstance(outcome, Placed):
            placed = documents.PlacedDocument(to_wire(outcome.first), to_wire(outcome.last), outcome.already)
            return answer_json(placed)
        return answer_problem(problem_of(outcome, condition=_index_of(outcome)))

    async def append_batch(self, request: Request, access: Access) -> Answer:
        """Several appends, each on its own: each is stored or refused as a whole."""
        access.check(Right.APPEND)
        appends = decoded(await request.body(), rows.decode_appends)
        if len(appends) > MAX_BATCH_APPENDS:
            raise InvalidInput("appends", f"{len(appends)} appends, the limit of one request is {MAX_BATCH_APPENDS}")
        self._metrics.add(metrics.BATCH, amount=len(appends))
        outcomes = await asyncio.gather(*[self._append_row(row, access) for row in appends])
        return Answer(200, rows.encode(outcomes), rows.MEDIA_TYPE)

    async def _append_row(self, row: rows.AppendRow, access: Access) -> rows.OutcomeRow:
        try:
            outcome = await self.place(access, rows.append_from(row))
        except FencepostError as error:
            outcome = error
        return rows.outcome_row(outcome, condition=_index_of(outcome))

    async def place(self, access: Access, append: Append) -> Placed | FencepostError:
        """Append within the caller's scope. A refusal is returned, with the caller's own condition in it."""
        events, conditions = append.events, append.conditions
        with self._observer.append(len(events), len(conditions)) as seen:
            access.check_events(events)
            narrowed = access.narrowed(conditions)
            unless = None if append.unless is None else access.scope.narrowed(append.unless)
            checkpoint = append.checkpoint
            if checkpoint is not None:
                checkpoint = (access.checkpoint(checkpoint[0]), checkpoint[1])
            refusal: FencepostError
            try:
                placed = await self._store.append(
                    events, [each for each in narrowed if each is not None], unless=unless, checkpoint=checkpoint
                )
            except ConditionFailed as error:
                index = narrowed.index(error.condition)
                self._metrics.add(metrics.APPENDS, "conflict")
                self._metrics.add(metrics.CONFLICTS, boundary_of(conditions[index].fail_if_events_match))
                refusal = _Conflict(index, conditions[index], error.conflict)
            except CheckpointBehind as error:
                self._metrics.add(metrics.APPENDS, "checkpoint-behind")
                refusal = CheckpointBehind(access.visible_name(error.name), error.position, error.current)
            except FencepostError as error:
                self._metrics.add(metrics.APPENDS, "refused")
                refusal = error
            else:
                self._metrics.add(metrics.APPENDS, "already" if placed.already else "stored")
                if not placed.already:
                    self._metrics.add(metrics.APPENDED, amount=len(events))
                seen["fencepost.already"] = placed.already
                seen["fencepost.position"] = str(placed.last)
                return placed
            seen["fencepost.refused"] = type(refusal).__name__.lstrip("_")
            return refusal

    async def read(self, request: Request, access: Access) -> Answer | Stream:
        """A page of events, or all of them as NDJSON."""
        access.check(Right.READ)
        in_rows = request.media_type == rows.MEDIA_TYPE
        wanted = await self._reading(request, access, in_rows=in_rows)
        if not in_rows and request.accepts(NDJSON):
            return Stream(self._streams.reading(wanted), NDJSON)
        reach, events, more = await self._page(wanted)
        if access.scope.is_limited:  # as far as the caller may know: the last event inside, or `upto` if that is lower
            head = await self.visible_head(access)
            reach = head if wanted.upto is None else min(head, wanted.upto)
        self._metrics.add(metrics.READ, amount=len(events))
        if in_rows:
            page = rows.PageRow(to_wire(reach), rows.stored_rows(events), more)
            return Answer(200, rows.encode(page), rows.MEDIA_TYPE)
        body = {"events": [documents.document_of(event) for event in events], "head": to_wire(reach), "more": more}
        return answer_json(body)

    async def _page(self, wanted: Reading) -> tuple[int, list[SequencedEvent], bool]:
        if wanted.query is None:
            return 0, [], False
        reading = await self._store.read(**wanted._asdict())
        events: list[SequencedEvent] = []
        size = 0
        async for page in reading.pages():
            for event in page:
                events.append(event)
                size += len(event.data)
                if len(events) >= PAGE_EVENTS or size >= PAGE_BYTES:
                    return reading.upto, events, wanted.limit is None or len(events) < wanted.limit
        return reading.upto, events, False

    async def visible_head(self, access: Access) -> int:
        """The head as the caller may know it: the position of the last event inside its scope."""
        if not access.scope.is_limited:
            return await self._store.head()
        query = access.scope.narrowed(None)
        assert query is not None
        async for event in self._store.read(query, limit=1, backwards=True):
            return event.position
        return 0

    async def _reading(self, request: Request, access: Access, *, in_rows: bool = False) -> Reading:
        given: rows.ReadRow | documents.ReadDocument
        if in_rows:
            given = decoded(await request.body(), rows.decode_read)
            query: Query | None = rows.query_from(given.query)
        else:
            if request.method == "POST":
                given = documents.parsed(await request.body() or b"{}", documents.ReadDocument)
            else:
                given = read_parameters(request)
            query = documents.query_from(given.query)
        upto = None if given.upto is None else from_wire(given.upto, "upto")
        return Reading(
            access.scope.narrowed(query), from_wire(given.after, "after"), upto, given.limit, given.backwards
        )

    async def subscribe(self, request: Request, access: Access) -> Stream:
        """Events as they come: server-sent events, or NDJSON for a client that accepts it."""
        access.check(Right.READ)
        last_id = request.headers.get("last-event-id")
        wanted = await self._reading(request, access)
        if wanted.upto is not None or wanted.limit is not None or wanted.backwards:
            raise InvalidInput("upto", "a subscription takes query and after; it has no end, limit or direction")
        after = wanted.after if last_id is None else from_wire(last_id, "Last-Event-ID")
        return self._streams.subscription(wanted.query, after, as_lines=request.accepts(NDJSON))

    async def head(self, request: Request, access: Access) -> Answer:
        """The head; with `wait_s`, as soon as it is above `after`."""
        access.check(Right.READ)
        after = position_parameter(request, "after") or 0
        wait_s = min(number_parameter(request, "wait_s", 0.0), self._settings.max_wait_s)
        head = await self.visible_head(access)
        if head <= after and wait_s > 0:
            self._streams.check_room()
            with self._streams.counted(self._heads.head):
                async with request.while_connected():
                    head = await self._head_above(access, head, after, wait_s)
        tag = f'"{head}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Answer(304, headers=headers)
        return answer_json({"head": to_wire(head)}, headers=headers)

    async def _head_above(self, access: Access, head: int, after: int, wait_s: float) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        newest = head
        while head <= after and (rest_s := deadline - loop.time()) > 0 and not self._streams.draining:
            newest = await self._heads.above(max(newest, after), rest_s)
            head = newest if not access.scope.is_limited else await self.visible_head(access)
        return head

    async def checkpoint(self, request: Request, access: Access) -> Answer:
        access.check(Right.READ)
        name = request.places["name"]
        position = await self._store.checkpoint(access.checkpoint(name))
        return answer_json({"name": name, "position": to_wire(position)})

    async def recorded(self, request: Request, access: Access) -> Answer:
        """What appends were conditional on, page by page."""
        access.check(Right.READ)
        access.check_unlimited("this")
        after, upto = position_parameter(request, "after") or 0, position_parameter(request, "upto")
        limit = min(int(number_parameter(request, "limit", PAGE_EVENTS)), PAGE_EVENTS)
        found = []
        async for append in self._store.recorded(after=after, upto=upto):
            found.append(append)
            if len(found) >= limit:
                break
        if request.accepts(rows.MEDIA_TYPE):
            return Answer(200, rows.encode([rows.recorded_row(append) for append in found]), rows.MEDIA_TYPE)
        return answer_json({"appends": [documents.recorded_document(append) for append in found]})

    async def restore(self, request: Request, access: Access) -> Answer:
        """Take over another store's events with their positions."""
        access.check(Right.ADMIN)
        access.check_unlimited("a restore")
        events, appends = decoded(await request.body(), rows.decode_restore)
        await self._store.restore(
            [rows.stored_from(row) for row in events], [rows.recorded_from(row) for row in appends]
        )
        return answer_json({"head": to_wire(await self._store.head())})


class _Conflict(ConditionFailed):
    """A failed condition of the caller, with its index."""

    def __init__(self, index: int, condition: AppendCondition, conflict: SequencedEvent) -> None:
        super().__init__(condition, conflict)
        self.index = index


def _index_of(outcome: Placed | FencepostError) -> int:
    return outcome.index if isinstance(outcome, _Conflict) else 0


def decoded(body: bytes, decode: Callable[[bytes], Decoded]) -> Decoded:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput("body", f"not a request that this server understands: {error}") from None
    except RecursionError:
        raise InvalidInput("body", "nested too deeply to be decoded") from None


def read_parameters(request: Request) -> documents.ReadDocument:
    """A reading from the parameters of a URL: `type` and `tag`, each any number of times, or `query` as JSON."""
    given = request.query
    unknown = given.keys() - {"type", "tag", "query", "after", "upto", "limit", "backwards"}
    if unknown:
        raise InvalidInput(min(unknown), "unknown parameter; known are type, tag, query, after, upto, limit, backwards")
    query = None
    if "query" in given:
        if "type" in given or "tag" in given:
            raise InvalidInput("query", "give query, or type and tag, not both")
        query = documents.parsed(given["query"][0].encode(), documents.QueryDocument)
    elif "type" in given or "tag" in given:
        query = documents.QueryDocument([documents.ItemDocument(given.get("type", []), given.get("tag", []))])
    limit = given.get("limit", [None])[0]
    if limit is not None and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise InvalidInput("limit", f"a whole number is needed, not {limit!r:.80}")
    backwards = given.get("backwards", ["false"])[0]
    if backwards not in ("true", "false"):
        raise InvalidInput("backwards", f"true or false is needed, not {backwards!r:.80}")
    return documents.ReadDocument(
        query,
        given.get("after", ["0"])[0],
        given.get("upto", [None])[0],
        None if limit is None else int(limit),
        backwards == "true",
    )


def boundary_of(query: Query) -> str:
    """What a condition names, for metrics: the number of items and what they are made of."""
    kinds = {("types" if item.types else "") + ("+tags" if item.tags else "") for item in query.items}
    shapes = sorted(kind.strip("+") or "all" for kind in kinds)
    return f"{'1 item' if len(query.items) == 1 else 'several items'}: {' or '.join(shapes)}"
