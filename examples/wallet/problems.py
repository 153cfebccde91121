"""What can go wrong, as problem+json (RFC 9457): a type to branch on, a title and detail to read.

`type` is a relative reference, one for each kind of problem. Whatever helps the client to go on
is a member of its own: the current cursor, where an operation was applied, the fields at fault.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fencepost import InvalidInput, StoreUnavailable
from fencepost.decisions import EventUnreadable, RetriesExhausted

from .domain import CursorStale, InsufficientFunds, WalletUnknown

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger(__name__)


def problem(request: Request, status: int, kind: str, title: str, detail: str, **members: Any) -> Response:
    body = {
        "type": f"/problems/{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        **members,
    }
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def stale(request: Request, error: CursorStale, applied_at: int | None = None) -> Response:
    """With `applied_at`, the same operation was applied already, at that position."""
    members: dict[str, Any] = {"cursor": error.cursor}
    detail = str(error)
    if applied_at is not None:
        members["applied_at"] = applied_at
        detail += f"; this operation was applied already, at position {applied_at}"
    return problem(request, 409, "stale-cursor", "The wallet has changed", detail, **members)


def install(app: FastAPI) -> None:
    """Turn the errors of the rules, of the input and of the store into answers."""

    @app.exception_handler(WalletUnknown)
    async def _(request: Request, error: WalletUnknown) -> Response:
        return problem(request, 404, "unknown-wallet", "Unknown wallet", str(error), wallet_id=error.wallet_id)

    @app.exception_handler(InsufficientFunds)
    async def _(request: Request, error: InsufficientFunds) -> Response:
        members = {"wallet_id": error.wallet_id, "balance": error.balance, "amount": error.amount}
        return problem(request, 422, "insufficient-funds", "Insufficient funds", str(error), **members)

    @app.exception_handler(CursorStale)
    async def _(request: Request, error: CursorStale) -> Response:
        return stale(request, error)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        # The first part of a location says where a field was: in the body, the path, the query.
        errors = [
            {"field": ".".join(map(str, each["loc"][1:])) or str(each["loc"][0]), "problem": str(each["msg"])}
            for each in error.errors()
        ]
        detail = "; ".join(f"{each['field']}: {each['problem']}" for each in errors)
        return problem(request, 422, "invalid-input", "Invalid input", detail, errors=errors)

    @app.exception_handler(InvalidInput)
    async def _(request: Request, error: InvalidInput) -> Response:
        errors = [{"field": error.field, "problem": error.problem}]
        return problem(request, 422, "invalid-input", "Invalid input", str(error), errors=errors)

    @app.exception_handler(RetriesExhausted)
    @app.exception_handler(StoreUnavailable)
    async def _(request: Request, error: Exception) -> Response:
        return problem(request, 503, "busy", "Too busy at the moment", f"{error}; nothing was applied")

    @app.exception_handler(EventUnreadable)
    async def _(request: Request, error: EventUnreadable) -> Response:
        log.error("%s %s: %s", request.method, request.url.path, error)  # the client can do nothing about it
        members = {"position": error.event.position, "event_type": error.event.type}
        return problem(request, 500, "unreadable-event", "A stored event cannot be read", str(error), **members)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        return problem(request, error.status_code, "http", str(error.detail), f"{request.method} {request.url.path}")
