"""The page that shows wallets live, and the stream of server-sent events that it lives on.

Each event carries its position as its id. A browser that lost the connection asks again with the
last id it has seen, so it misses nothing and sees nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, StreamingResponse

from fencepost import Query as EventQuery
from fencepost import SequencedEvent, aio
from fencepost.decisions import EventUnreadable

from .domain import events
from .requests import Position, encode, header, position_of
from .routing import DirectRoute

log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0  # so that proxies do not close an idle stream
PAGE = Path(__file__).with_name("page.html")

LAST_EVENT_ID = header(
    "Last-Event-ID",
    {"type": "integer", "minimum": 0},
    "The position that the client has seen last; goes before `after`",
)

router = APIRouter(route_class=DirectRoute)


@router.get("/", include_in_schema=False)
async def get_page(request: Request) -> Response:
    return HTMLResponse(PAGE.read_text())


@router.get("/api/live", response_class=StreamingResponse, openapi_extra=LAST_EVENT_ID)
async def get_live(request: Request, after: Position = 0) -> Response:
    """Every event of every wallet: those that are stored, then each new one as it comes."""
    store: aio.AsyncEventStore = request.app.state.store.store
    last_event_id = request.headers.get("last-event-id")
    stream = stream_of(store, after if last_event_id is None else position_of("Last-Event-ID", last_event_id))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def told(event: SequencedEvent) -> dict[str, Any]:
    """The event's fields, decoded because other programs may write to the store, with its position, type and time.

    An event that cannot be read must not end a history or a stream: its field `unreadable` has the error.
    """
    try:
        fields = msgspec.structs.asdict(events.decode(event))
    except EventUnreadable as error:
        log.error("%s", error)
        fields = {"unreadable": str(error)}
    return {**fields, "position": event.position, "type": event.type, "recorded_at": event.recorded_at}


def message(event: SequencedEvent) -> bytes:
    """The event as a server-sent event; one that cannot be read is of the kind `unreadable`."""
    body = told(event)
    kind = b"event: unreadable\n" if "unreadable" in body else b""
    return b"%bid: %d\ndata: %b\n\n" % (kind, event.position, encode(body))


async def stream_of(store: aio.AsyncEventStore, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with store.subscribe(EventQuery.of(types=events.types), after=after) as subscription:
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    event = await anext(subscription, None)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if event is None:
                return  # the store was closed
            yield message(event)
