"""What can go wrong, as problem+json (RFC 9457): a type to branch on, a title and detail to read.

`type` is a relative reference, one for each kind of problem. Whatever helps the client to go on
is a member of its own: the current cursor, where an operation was applied, the fields at fault.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fencepost import InvalidInput, StoreClosed, StoreError, StoreUnavailable
from fencepost.decisions import EventUnreadable, RequestMismatch, RetriesExhausted

from .domain import CursorStale, InsufficientFunds, WalletUnknown
from .requests import BodyTooLarge, encode

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
    return Response(encode(body), status, headers, MEDIA_TYPE)


# For the errors of the rules: the status, kind and title of the problem, and which attributes become its members.
RULES: dict[type[Exception], tuple[int, str, str, tuple[str, ...]]] = {
    WalletUnknown: (404, "unknown-wallet", "Unknown wallet", ("wallet_id",)),
    InsufficientFunds: (422, "insufficient-funds", "Insufficient funds", ("wallet_id", "balance", "amount")),
    CursorStale: (409, "stale-cursor", "The wallet has changed", ("cursor",)),
    BodyTooLarge: (413, "too-large", "The body is too large", ("limit",)),
}


async def refused(request: Request, error: Exception, more: str = "", **members: Any) -> Response:
    """The answer to an error that `RULES` lists."""
    status, kind, title, names = RULES[type(error)]
    named = {name: getattr(error, name) for name in names}
    return problem(request, status, kind, title, f"{error}{more}", **named, **members)


def install(app: FastAPI) -> None:
    """Turn the errors of the rules, of the input and of the store into answers."""
    for kind in RULES:
        app.add_exception_handler(kind, refused)

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

    @app.exception_handler(RequestMismatch)
    async def _(request: Request, error: RequestMismatch) -> Response:
        members = {"applied_at": error.earlier.position, "fields": error.fields}
        detail = (
            f"this id belongs to an operation with other values of {', '.join(error.fields)}, "
            f"applied at position {error.earlier.position}; nothing was applied now"
        )
        return problem(request, 422, "operation-id-reused", "The id belongs to another operation", detail, **members)

    @app.exception_handler(RetriesExhausted)
    async def _(request: Request, error: RetriesExhausted) -> Response:
        detail = f"{error}; nothing was applied: send the request again"
        return problem(request, 503, "busy", "Too busy at the moment", detail, outcome="not applied")

    @app.exception_handler(StoreError)
    async def _(request: Request, error: StoreError) -> Response:
        log.error("%s %s: %s", request.method, request.url.path, error)
        passing = isinstance(error, (StoreUnavailable, StoreClosed))
        status, kind = (503, "unavailable") if passing else (500, "store-failed")
        title = "The store is unavailable" if passing else "The store failed"
        if request.method in ("GET", "HEAD"):
            return problem(request, status, kind, title, str(error))
        # The operation may have been applied, because the reply of a commit can be lost.
        detail = (
            f"{error}; it is unknown whether the operation was applied: send the same request again, with the same id. "
            "It is then applied if it was not, and answered with the first result if it was"
        )
        return problem(request, status, kind, title, detail, outcome="unknown")

    @app.exception_handler(EventUnreadable)
    async def _(request: Request, error: EventUnreadable) -> Response:
        log.error("%s %s: %s", request.method, request.url.path, error)  # the client can do nothing about it
        members = {"position": error.event.position, "event_type": error.event.type}
        return problem(request, 500, "unreadable-event", "A stored event cannot be read", str(error), **members)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        return problem(request, error.status_code, "http", str(error.detail), f"{request.method} {request.url.path}")
