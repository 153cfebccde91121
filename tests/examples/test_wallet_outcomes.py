"""The wallet service behind a network that loses the answers of the database: what it says is true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from examples.wallet.app import create
from tests.postgres.proxy import Proxy
from tests.support.postgres import new_database, over_tcp

import fencepost

DEPOSITS = 20
APPENDED = b'"deposit_id":'  # in the data of the event that is appended, and in no reading


class Swallowing(Proxy):
    """Loses the answer to each append, while it is told to; the database has done what it was asked."""

    swallows = False

    def lose(self, data: bytes) -> None:
        if self.swallows and APPENDED in data:
            self.lose_answers(1)


@pytest.fixture
def database(postgres_url: str) -> str:
    return over_tcp(new_database(postgres_url))


@pytest.fixture
def proxy(database: str) -> Iterator[Swallowing]:
    proxy = Swallowing(urlsplit(database).port or 5432)
    yield proxy
    proxy.close()


def test_an_answer_that_is_lost_is_unknown_and_the_same_request_again_settles_it(
    database: str, proxy: Swallowing
) -> None:
    fencepost.open(database, create=True).close()
    app = create(database.replace(f":{urlsplit(database).port}/", f":{proxy.port}/"))

    async def run() -> tuple[list[httpx.Response], list[httpx.Response], int]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://wallet") as http,
        ):
            await http.put("/api/wallets/ada", json={"owner": "Ada"})
            first, again = [], []
            for number in range(DEPOSITS):
                body = {"deposit_id": str(number), "amount": 1}
                proxy.swallows = number % 2 == 1
                first.append(await http.post("/api/wallets/ada/deposits", json=body))
                proxy.swallows = False
                again.append(await http.post("/api/wallets/ada/deposits", json=body))
            return first, again, (await http.get("/api/wallets/ada")).json()["balance"]

    first, again, balance = asyncio.run(run())
    assert [response.status_code for response in first] == [201, 503] * (DEPOSITS // 2)
    for unknown in first[1::2]:
        assert unknown.json()["outcome"] == "unknown"
        assert "nothing was applied" not in unknown.text
        assert "send the same request again" in unknown.json()["detail"]
    # Every one of them was applied, and sending it again did not apply it again.
    assert {response.status_code for response in again} == {200}
    assert balance == DEPOSITS
