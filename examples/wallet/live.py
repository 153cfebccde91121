"""The page that shows wallets live, and the stream of server-sent events that it lives on.

Each event carries its position as its id. A browser that lost the connection asks again with the
last id it has seen, so it misses nothing and sees nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, StreamingResponse

from fencepost import Query as EventQuery
from fencepost import SequencedEvent, aio

from .domain import events
from .requests import Position, position_of
from .routing import DirectRoute

HEARTBEAT_S = 15.0  # an idle stream says something, lest something in between take it for dead
PAGE = Path(__file__).with_name("page.html")

LAST_EVENT_ID: dict[str, Any] = {
    "parameters": [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "integer", "minimum": 0},
            "description": "The position that the client has seen last; goes before `after`",
        }
    ]
}

router = APIRouter(route_class=DirectRoute)


@router.get("/", include_in_schema=False)
async def get_page(request: Request) -> Response:
    return HTMLResponse(PAGE.read_text())


@router.get("/api/live", response_class=StreamingResponse, openapi_extra=LAST_EVENT_ID)
async def get_live(request: Request, after: Position = 0) -> Response:
    """Every event of every wallet: those that are stored, then each new one as it comes."""
    store: aio.AsyncEventStore = request.app.state.store.store
    last_event_id = request.headers.get("last-event-id")
    stream = told(store, after if last_event_id is None else position_of("Last-Event-ID", last_event_id))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def told(store: aio.AsyncEventStore, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async with store.subscribe(EventQuery.of(types=events.types), after=after) as subscription:
        following: asyncio.Future[SequencedEvent | None] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(subscription, None))
                if not (await asyncio.wait([following], timeout=HEARTBEAT_S))[0]:
                    yield b": still here\n\n"
                    continue
                event, following = following.result(), None
                if event is None:
                    return  # the store was closed
                data = msgspec.json.encode({"type": event.type, **msgspec.structs.asdict(events.decode(event))})
                yield b"id: %d\ndata: %s\n\n" % (event.position, data)
        finally:
            if following is not None:
                following.cancel()
