"""The HTTP interface of the wallets: calls a decision for each request, and turns its result into a status.

`create(address)` makes the application on any store. An operation that is applied now answers 201,
one that was applied before answers 200 with the first result, and another operation under the same
id is refused with 422. A client may name the state that it has seen, by `If-Match` or `cursor`. If the
wallet has changed since, the answer is 409, even if the operation was applied before.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from msgspec.structs import asdict

from fencepost import Query as EventQuery
from fencepost import aio
from fencepost.decisions import Cached, Decided, project

from . import live, problems
from .domain import (
    Balance,
    CursorStale,
    Existence,
    WalletUnknown,
    deposit_at,
    events,
    open_wallet,
    transfer,
    withdraw,
)
from .domain import deposit as decide_deposit
from .requests import (
    Applied,
    Deposit,
    Health,
    History,
    Opening,
    Position,
    Problem,
    Transfer,
    Wallet,
    WalletId,
    Withdrawal,
    encode,
    header,
    position_of,
)
from .routing import DirectRoute, Service

STORE_VARIABLE = "WALLET_STORE"
MAX_LIMIT = 1_000

REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {problems.MEDIA_TYPE: {}}} for status in (404, 409, 413, 422, 500, 503)
}
OPERATION: dict[int | str, dict[str, Any]] = {
    201: {"model": Applied, "description": "Applied now"},
    200: {"model": Applied, "description": "Applied before; the first result"},
    **REFUSED,
}

IF_MATCH = header("If-Match", {"type": "string"}, 'The cursor of the wallet that the client has seen, as in `"42"`')

router = APIRouter(prefix="/api", route_class=DirectRoute)


def create(address: str | None = None) -> FastAPI:
    """The service on the store at the address, by default the one that the environment names."""
    place = os.environ[STORE_VARIABLE] if address is None else address

    @asynccontextmanager
    async def serving(app: FastAPI) -> AsyncIterator[None]:
        async with aio.open(place) as store:
            app.state.store = Cached(store)
            yield

    # A flat list of routes: with nested routers each request would be matched twice.
    app = Service(title="Wallets", version="1", lifespan=serving, routes=[*router.routes, *live.router.routes])
    problems.install(app)
    return app


def store_of(request: Request) -> Cached[aio.AsyncEventStore]:
    store: Cached[aio.AsyncEventStore] = request.app.state.store
    return store


@router.get("/wallets/{wallet_id}/events", response_model=History, responses=REFUSED)
async def get_events(
    request: Request,
    wallet_id: WalletId,
    after: Position = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
) -> Response:
    """What happened to a wallet, oldest first; `cursor` is the `after` of the next request.

    An event that cannot be read has `unreadable`, which says why, instead of its fields.
    """
    store = store_of(request).store
    reading = store.read(EventQuery.of(types=events.types, tags={f"wallet_id:{wallet_id}"}), after=after, limit=limit)
    found = [live.told(event) async for event in reading]
    if not found and not (await project(store, Existence(wallet_id))).opened:
        raise WalletUnknown(wallet_id)
    return answer(200, {"events": found, "cursor": reading.head})


@router.post("/wallets/{wallet_id}/deposits", responses=OPERATION, openapi_extra=IF_MATCH, status_code=201)
async def post_deposit(request: Request, wallet_id: WalletId, deposit: Deposit) -> Response:
    """Deposits to one wallet do not conflict with each other, unless they ask for a cursor."""
    store = store_of(request)
    fields = deposit.model_dump(exclude={"cursor"})
    cursor = cursor_of(request, deposit.cursor)
    if cursor is None:
        return applied(await decide_deposit(store, Existence(wallet_id), **fields))
    deciding = deposit_at(store, Balance(wallet_id), cursor=cursor, **fields)
    return await applied_at_cursor(request, deciding, wallet_id, cursor)


@router.post("/wallets/{wallet_id}/withdrawals", responses=OPERATION, openapi_extra=IF_MATCH, status_code=201)
async def post_withdrawal(request: Request, wallet_id: WalletId, withdrawal: Withdrawal) -> Response:
    cursor = cursor_of(request, withdrawal.cursor)
    fields = withdrawal.model_dump(exclude={"cursor"})
    deciding = withdraw(store_of(request), Balance(wallet_id), cursor=cursor, **fields)
    return await applied_at_cursor(request, deciding, wallet_id, cursor)


@router.post("/transfers", responses=OPERATION, openapi_extra=IF_MATCH, status_code=201)
async def post_transfer(request: Request, order: Transfer) -> Response:
    """Move money from one wallet to another. A cursor is that of the wallet that pays."""
    cursor = cursor_of(request, order.cursor)
    fields = order.model_dump(include={"transfer_id", "amount", "description"})
    source, target = Balance(order.from_wallet_id), Existence(order.to_wallet_id)
    deciding = transfer(store_of(request), source, target, cursor=cursor, **fields)
    return await applied_at_cursor(request, deciding, order.from_wallet_id, cursor)


@router.get("/wallets/{wallet_id}", response_model=Wallet, responses=REFUSED)
async def get_wallet(request: Request, wallet_id: WalletId) -> Response:
    wallet = await project(store_of(request), Balance(wallet_id))
    wallet.check()
    body = {"wallet_id": wallet_id, "owner": wallet.owner, "balance": wallet.amount, "cursor": wallet.position}
    return answer(200, body, {"ETag": f'"{wallet.position}"'})


@router.put("/wallets/{wallet_id}", responses=OPERATION, status_code=201)
async def put_wallet(request: Request, wallet_id: WalletId, opening: Opening) -> Response:
    """Open a wallet. The same request again changes nothing; another one for the same wallet is refused."""
    decided = await open_wallet(
        store_of(request), wallet_id=wallet_id, owner=opening.owner, initial_balance=opening.initial_balance
    )
    first = decided.event
    if decided.already and (first.owner, first.initial_balance) != (opening.owner, opening.initial_balance):
        detail = f"wallet {wallet_id!r} was opened with another owner or balance, at position {decided.position}"
        return problems.problem(request, 409, "wallet-exists", "The wallet exists", detail, applied_at=decided.position)
    return applied(decided)


@router.get("/health", response_model=Health, responses={503: REFUSED[503]})
async def get_health(request: Request) -> Response:
    """Whether the store can be read, and how far it reaches."""
    return answer(200, {"status": "ok", "head": await store_of(request).store.head()})


def cursor_of(request: Request, cursor: int | None) -> int | None:
    """The cursor that the client asks for, in the body or as an entity tag; the body is more explicit."""
    if_match = request.headers.get("if-match")
    if cursor is not None or if_match is None or if_match.strip() == "*":
        return cursor
    return position_of("If-Match", if_match.strip().removeprefix("W/").strip('"'))


async def applied_at_cursor(
    request: Request, deciding: Awaitable[Decided[Any]], wallet_id: str, cursor: int | None
) -> Response:
    """The answer to an operation: 409 if it was applied before and its cursor is stale."""
    decided = await deciding
    if decided.already and cursor is not None:
        wallet = await project(store_of(request), Balance(wallet_id))
        if wallet.position > cursor:
            stale, at = CursorStale(wallet_id, wallet.position), decided.position
            more = f"; this operation was applied already, at position {at}"
            return await problems.refused(request, stale, more, applied_at=at)
    return applied(decided)


def applied(decided: Decided[Any]) -> Response:
    """The same body for the first time and for every repetition: the event itself."""
    event = decided.event
    body = {"type": type(event).__name__, **asdict(event), "position": decided.position}
    return answer(200 if decided.already else 201, body)


def answer(status: int, body: object, headers: dict[str, str] | None = None) -> Response:
    """A JSON response. FastAPI does not validate it again, because it was built here."""
    return Response(encode(body), status, headers, "application/json")
