"""The same appends by tasks of one asyncio loop instead of threads; the peers have no such thing."""

from __future__ import annotations

import asyncio
from itertools import count
from time import monotonic

import fencepost.aio
from fencepost import AppendCondition, Event, Query

from .filling import DATA
from .peers import TYPES


def run(url: str, callers: int, conditional: bool, label: str, seconds: float) -> int:
    """How many appends the tasks get done in that time."""
    return asyncio.run(_run(url, callers, conditional, label, seconds))


async def _run(url: str, callers: int, conditional: bool, label: str, seconds: float) -> int:
    async with fencepost.aio.open(url) as store:
        wallets = [f"wallet:{label}.{caller}" for caller in range(callers)]
        opened = [await store.append([Event("WalletOpened", tags=[wallet], data=DATA)]) for wallet in wallets]
        end = monotonic() + seconds

        async def call(wallet: str, after: int) -> int:
            for number in count():
                if monotonic() >= end:
                    return number
                tags = [wallet, f"branch:{number % 100}", f"operation:{wallet}.{number}"]
                condition = AppendCondition(Query.of(types=TYPES[:2], tags=[wallet]), after) if conditional else None
                after = (await store.append([Event("MoneyDeposited", tags=tags, data=DATA)], condition)).last
            raise AssertionError

        return sum(
            await asyncio.gather(*[call(wallet, placed.last) for wallet, placed in zip(wallets, opened, strict=True)])
        )
