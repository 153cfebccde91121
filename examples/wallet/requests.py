"""What clients send and get, and what it must look like. FastAPI refuses the rest and names the field.

Answers have integers of any size: a balance may grow beyond 64 bits, which is where msgspec stops.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints, ValidationInfo, field_validator

from fencepost import InvalidInput
from fencepost.model import MAX_POSITION

MAX_BODY_BYTES = 65_536  # far more than any request needs
MAX_AMOUNT = 2**53 - 1  # the largest whole number that every JSON reader reads exactly
ID = r"^[A-Za-z0-9._~-]+$"

Id = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=ID)]
WalletId = Annotated[str, Path(min_length=1, max_length=64, pattern=ID)]
Amount = Annotated[StrictInt, Field(gt=0, le=MAX_AMOUNT)]
Description = Annotated[str, StringConstraints(max_length=500)]
Cursor = Annotated[StrictInt, Field(ge=0, le=MAX_POSITION)]
Position = Annotated[int, Query(ge=0, le=MAX_POSITION)]

_encode = msgspec.json.Encoder().encode


def encode(body: object) -> bytes:
    """
    >>> encode({"balance": 2**64})
    b'{"balance":18446744073709551616}'
    """
    try:
        return _encode(body)
    except OverflowError:
        return json.dumps(msgspec.to_builtins(body), separators=(",", ":"), ensure_ascii=False).encode()


def header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """A header as OpenAPI describes it, by hand: FastAPI takes longer to look for one that is seldom sent."""
    given = {"name": name, "in": "header", "required": False, "schema": schema, "description": description}
    return {"parameters": [given]}


def position_of(header: str, text: str) -> int:
    """The position in a header, which FastAPI does not validate."""
    # The length is checked first, because `int` raises another error for thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_POSITION)) and int(text) <= MAX_POSITION):
        raise InvalidInput(header, f"a position from 0 to {MAX_POSITION} is needed, such as 42, not {text!r:.80}")
    return int(text)


class BodyTooLarge(Exception):
    def __init__(self, size: int) -> None:
        super().__init__(f"at least {size} bytes, the limit is {MAX_BODY_BYTES}")
        self.limit = MAX_BODY_BYTES


async def body_of(request: Request) -> bytes:
    """The body. Raises `BodyTooLarge` before more than the limit is in memory."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > MAX_BODY_BYTES:
        raise BodyTooLarge(int(declared))
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge(size)
        chunks.append(chunk)
    return b"".join(chunks)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Opening(Body):
    owner: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    initial_balance: Annotated[StrictInt, Field(ge=0, le=MAX_AMOUNT)] = 0


class Deposit(Body):
    deposit_id: Id
    amount: Amount
    description: Description = ""
    cursor: Cursor | None = None


class Withdrawal(Body):
    withdrawal_id: Id
    amount: Amount
    description: Description = ""
    cursor: Cursor | None = None


class Transfer(Body):
    transfer_id: Id
    from_wallet_id: Id
    to_wallet_id: Id
    amount: Amount
    description: Description = ""
    cursor: Cursor | None = None

    @field_validator("to_wallet_id")
    @classmethod
    def _is_another(cls, given: str, info: ValidationInfo) -> str:
        if given == info.data.get("from_wallet_id"):
            raise ValueError("money is transferred to another wallet, not to the same one")
        return given


class Wallet(BaseModel):
    wallet_id: str
    owner: str
    balance: int
    cursor: int


class Applied(BaseModel):
    """An operation as it was first applied: its fields, its type, and its position in the log."""

    model_config = ConfigDict(extra="allow")

    type: str
    position: int


class History(BaseModel):
    events: list[dict[str, Any]]
    cursor: int
    """Up to where this history is complete; `after` for the next request."""


class Health(BaseModel):
    status: str
    head: int


class Problem(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
