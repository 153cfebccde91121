"""The wallet service's interface: every status that it promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from examples.wallet.app import create
from examples.wallet.live import stream_of
from examples.wallet.requests import MAX_BODY_BYTES

from fencepost import Event, StoreClosed, StoreError, StoreUnavailable, aio
from fencepost.model import MAX_POSITION

JSON = dict[str, Any]
JSON_TYPE = {"Content-Type": "application/json"}
DEPOSITS = "/api/wallets/ada/deposits"


class Client:
    """Calls the application in this process, without a network."""

    def __init__(self, runner: asyncio.Runner, http: httpx.AsyncClient, store: aio.AsyncEventStore) -> None:
        self._runner = runner
        self._http = http
        self._store = store

    def __getattr__(self, verb: str) -> Callable[..., httpx.Response]:
        async def call(*args: Any, **options: Any) -> httpx.Response:
            response: httpx.Response = await getattr(self._http, verb)(*args, **options)
            return response

        return lambda *args, **options: self._runner.run(call(*args, **options))

    def live(self, count: int) -> list[bytes]:
        """The first messages of the live stream, after the one that says when to try again."""

        async def taken() -> list[bytes]:
            stream = stream_of(self._store, 0)
            assert (await anext(stream)).startswith(b"retry: ")
            messages = [await anext(stream) for _ in range(count)]
            await stream.aclose()
            return messages

        return self._runner.run(taken())

    def store(self, event: Event) -> None:
        """Put an event into the store, as something else than the service may."""
        self._runner.run(self._store.append([event]))


@pytest.fixture
def client() -> Iterator[Client]:
    app = create("memory:")
    serving = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(serving.__aenter__())
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://wallet")
        yield Client(runner, http, app.state.store.store)
        runner.run(serving.__aexit__(None, None, None))


@pytest.fixture
def ada(client: Client) -> Client:
    """A client whose store has Ada's wallet with 100 in it, at position 1."""
    assert client.put("/api/wallets/ada", json={"owner": "Ada", "initial_balance": 100}).status_code == 201
    return client


@pytest.fixture
def both(ada: Client) -> Client:
    assert ada.put("/api/wallets/bob", json={"owner": "Bob", "initial_balance": 5}).status_code == 201
    return ada


def problem(response: Any, status: int, kind: str) -> JSON:
    """The problem that the response tells of, which must be of the kind."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: JSON = response.json()
    assert body["type"] == f"/problems/{kind}"
    assert body["status"] == status
    assert {"title", "detail", "instance"} <= body.keys()
    return body


def balance(client: Client, wallet: str) -> int:
    found: int = client.get(f"/api/wallets/{wallet}").json()["balance"]
    return found


class TestOpening:
    def test_answers_201_when_it_is_new(self, client: Client) -> None:
        response = client.put("/api/wallets/ada", json={"owner": "Ada", "initial_balance": 100})
        assert response.status_code == 201
        assert response.json() == {
            "type": "WalletOpened",
            "wallet_id": "ada",
            "owner": "Ada",
            "initial_balance": 100,
            "position": 1,
        }

    def test_answers_200_when_it_is_repeated(self, ada: Client) -> None:
        again = ada.put("/api/wallets/ada", json={"owner": "Ada", "initial_balance": 100})
        assert (again.status_code, again.json()["position"]) == (200, 1)

    @pytest.mark.parametrize("other", [{"owner": "Eve", "initial_balance": 100}, {"owner": "Ada"}])
    def test_answers_409_with_another_body(self, ada: Client, other: JSON) -> None:
        assert problem(ada.put("/api/wallets/ada", json=other), 409, "wallet-exists")["applied_at"] == 1
        assert balance(ada, "ada") == 100

    def test_is_recognised_after_other_operations(self, ada: Client) -> None:
        ada.post("/api/wallets/ada/deposits", json={"deposit_id": "d", "amount": 1})
        assert ada.put("/api/wallets/ada", json={"owner": "Ada", "initial_balance": 100}).status_code == 200


class TestDeposit:
    BODY = {"deposit_id": "d1", "amount": 25, "description": "salary"}  # noqa: RUF012

    def test_answers_201(self, ada: Client) -> None:
        response = ada.post("/api/wallets/ada/deposits", json=self.BODY)
        assert response.status_code == 201
        assert response.json() == {"type": "DepositMade", "wallet_id": "ada", **self.BODY, "position": 2}
        assert balance(ada, "ada") == 125

    def test_answers_200_with_the_first_result_when_repeated(self, ada: Client) -> None:
        first = ada.post("/api/wallets/ada/deposits", json=self.BODY)
        again = ada.post("/api/wallets/ada/deposits", json=self.BODY)
        assert (again.status_code, again.json()) == (200, first.json())
        assert balance(ada, "ada") == 125

    def test_answers_404_for_an_unknown_wallet(self, ada: Client) -> None:
        body = problem(ada.post("/api/wallets/eve/deposits", json=self.BODY), 404, "unknown-wallet")
        assert body["wallet_id"] == "eve"


class TestWithdrawal:
    BODY = {"withdrawal_id": "w1", "amount": 60, "description": "rent"}  # noqa: RUF012

    def test_answers_201(self, ada: Client) -> None:
        response = ada.post("/api/wallets/ada/withdrawals", json=self.BODY)
        assert response.status_code == 201
        assert response.json() == {"type": "WithdrawalMade", "wallet_id": "ada", **self.BODY, "position": 2}
        assert balance(ada, "ada") == 40

    def test_answers_200_with_the_first_result_when_repeated(self, ada: Client) -> None:
        first = ada.post("/api/wallets/ada/withdrawals", json=self.BODY)
        again = ada.post("/api/wallets/ada/withdrawals", json=self.BODY)
        assert (again.status_code, again.json()) == (200, first.json())
        assert balance(ada, "ada") == 40

    def test_answers_422_when_there_is_not_enough(self, ada: Client) -> None:
        body = problem(
            ada.post("/api/wallets/ada/withdrawals", json={**self.BODY, "amount": 101}), 422, "insufficient-funds"
        )
        assert (body["wallet_id"], body["balance"], body["amount"]) == ("ada", 100, 101)
        assert balance(ada, "ada") == 100

    def test_answers_404_for_an_unknown_wallet(self, ada: Client) -> None:
        problem(ada.post("/api/wallets/eve/withdrawals", json=self.BODY), 404, "unknown-wallet")


class TestTransfer:
    BODY = {"transfer_id": "t1", "from_wallet_id": "ada", "to_wallet_id": "bob", "amount": 60}  # noqa: RUF012

    def test_answers_201_and_moves_the_money(self, both: Client) -> None:
        response = both.post("/api/transfers", json=self.BODY)
        assert response.status_code == 201
        assert response.json() == {"type": "MoneyTransferred", **self.BODY, "description": "", "position": 3}
        assert (balance(both, "ada"), balance(both, "bob")) == (40, 65)

    def test_answers_200_with_the_first_result_when_repeated(self, both: Client) -> None:
        first = both.post("/api/transfers", json=self.BODY)
        again = both.post("/api/transfers", json=self.BODY)
        assert (again.status_code, again.json()) == (200, first.json())
        assert (balance(both, "ada"), balance(both, "bob")) == (40, 65)

    def test_answers_422_when_there_is_not_enough(self, both: Client) -> None:
        problem(both.post("/api/transfers", json={**self.BODY, "amount": 101}), 422, "insufficient-funds")
        assert (balance(both, "ada"), balance(both, "bob")) == (100, 5)

    @pytest.mark.parametrize("unknown", ["from_wallet_id", "to_wallet_id"])
    def test_answers_404_for_an_unknown_wallet(self, both: Client, unknown: str) -> None:
        body = problem(both.post("/api/transfers", json={**self.BODY, unknown: "eve"}), 404, "unknown-wallet")
        assert body["wallet_id"] == "eve"

    def test_answers_422_to_a_transfer_to_the_same_wallet(self, both: Client) -> None:
        body = problem(both.post("/api/transfers", json={**self.BODY, "to_wallet_id": "ada"}), 422, "invalid-input")
        assert [error["field"] for error in body["errors"]] == ["to_wallet_id"]


OPERATIONS = [
    ("/api/wallets/ada/deposits", {"deposit_id": "x", "amount": 1}),
    ("/api/wallets/ada/withdrawals", {"withdrawal_id": "x", "amount": 1}),
    ("/api/transfers", {"transfer_id": "x", "from_wallet_id": "ada", "to_wallet_id": "bob", "amount": 1}),
]


class TestAnIdThatBelongsToAnotherOperation:
    @pytest.mark.parametrize(("path", "body"), OPERATIONS)
    @pytest.mark.parametrize("other", [{"amount": 2}, {"description": "other"}, {"amount": 2, "cursor": 3}])
    def test_answers_422(self, both: Client, path: str, body: JSON, other: JSON) -> None:
        assert both.post(path, json=body).status_code == 201
        refused = problem(both.post(path, json={**body, **other}), 422, "operation-id-reused")
        assert (refused["applied_at"], refused["fields"]) == (3, sorted(other.keys() - {"cursor"}))
        assert both.get("/api/health").json()["head"] == 3

    def test_answers_422_for_another_wallet(self, both: Client) -> None:
        assert both.post("/api/wallets/ada/deposits", json={"deposit_id": "x", "amount": 1}).status_code == 201
        other = both.post("/api/wallets/bob/deposits", json={"deposit_id": "x", "amount": 1})
        assert problem(other, 422, "operation-id-reused")["fields"] == ["wallet_id"]
        assert balance(both, "bob") == 5


@pytest.mark.parametrize(("path", "body"), OPERATIONS)
@pytest.mark.parametrize("place", ["header", "body"])
class TestCursor:
    def send(self, client: Client, path: str, body: JSON, place: str, cursor: int) -> Any:
        if place == "body":
            return client.post(path, json={**body, "cursor": cursor})
        return client.post(path, json=body, headers={"If-Match": f'"{cursor}"'})

    def test_that_is_current_is_accepted(self, both: Client, path: str, body: JSON, place: str) -> None:
        found = both.get("/api/wallets/ada")
        assert found.headers["etag"] == f'"{found.json()["cursor"]}"'
        assert self.send(both, path, body, place, found.json()["cursor"]).status_code == 201

    def test_that_is_stale_answers_409_with_the_current_one(
        self, both: Client, path: str, body: JSON, place: str
    ) -> None:
        both.post("/api/wallets/ada/deposits", json={"deposit_id": "other", "amount": 1})
        refused = problem(self.send(both, path, body, place, 1), 409, "stale-cursor")
        assert refused["cursor"] == 3
        assert "applied_at" not in refused
        assert self.send(both, path, body, place, refused["cursor"]).status_code == 201

    def test_that_is_stale_wins_over_a_repeated_id(self, both: Client, path: str, body: JSON, place: str) -> None:
        assert self.send(both, path, body, place, 1).status_code == 201
        refused = problem(self.send(both, path, body, place, 1), 409, "stale-cursor")
        assert (refused["cursor"], refused["applied_at"]) == (3, 3)
        again = self.send(both, path, body, place, 3)
        assert (again.status_code, again.json()["position"]) == (200, 3)
        assert both.get("/api/health").json()["head"] == 3

    def test_other_wallets_do_not_make_stale(self, both: Client, path: str, body: JSON, place: str) -> None:
        both.post("/api/wallets/bob/deposits", json={"deposit_id": "other", "amount": 1})
        assert self.send(both, path, body, place, 1).status_code == 201


def test_any_cursor_will_do_for_an_asterisk(ada: Client) -> None:
    response = ada.post("/api/wallets/ada/deposits", json=OPERATIONS[0][1], headers={"If-Match": "*"})
    assert response.status_code == 201


@pytest.mark.parametrize("wrong", ["abc", '"-1"', '""', '"1", "2"', str(MAX_POSITION + 1), "9" * 5000])
def test_a_cursor_that_is_none_is_refused(ada: Client, wrong: str) -> None:
    response = ada.post("/api/wallets/ada/deposits", json=OPERATIONS[0][1], headers={"If-Match": wrong})
    assert problem(response, 422, "invalid-input")["errors"][0]["field"] == "If-Match"


class TestReading:
    def test_a_wallet(self, ada: Client) -> None:
        response = ada.get("/api/wallets/ada")
        assert response.json() == {"wallet_id": "ada", "owner": "Ada", "balance": 100, "cursor": 1}

    def test_an_unknown_wallet_is_404(self, ada: Client) -> None:
        problem(ada.get("/api/wallets/eve"), 404, "unknown-wallet")
        problem(ada.get("/api/wallets/eve/events"), 404, "unknown-wallet")

    def test_its_history_in_pages(self, both: Client) -> None:
        for number in range(5):
            both.post("/api/wallets/ada/deposits", json={"deposit_id": f"d{number}", "amount": 1})
            both.post("/api/wallets/bob/deposits", json={"deposit_id": f"e{number}", "amount": 1})
        positions, after = [], 0
        for expected in (3, 3, 0):
            page = both.get("/api/wallets/ada/events", params={"after": after, "limit": 3}).json()
            assert len(page["events"]) == expected
            positions += [event["position"] for event in page["events"]]
            after = page["cursor"]
        assert positions == [1, 3, 5, 7, 9, 11]
        assert after == 12

    def test_its_history_tells_what_happened(self, both: Client) -> None:
        both.post("/api/transfers", json=TestTransfer.BODY)
        for wallet in ("ada", "bob"):
            last = both.get(f"/api/wallets/{wallet}/events").json()["events"][-1]
            assert last.pop("recorded_at").endswith("Z")
            assert last == {"position": 3, "type": "MoneyTransferred", **TestTransfer.BODY, "description": ""}

    @pytest.mark.parametrize("around", [b"%b", b" %b", b"\n%b\n"])
    def test_its_history_tells_what_others_have_stored(self, ada: Client, around: bytes) -> None:
        ada.store(deposit_of(around % b'{"wallet_id":"ada","amount":1, "deposit_id":"d"}'))
        last = ada.get("/api/wallets/ada/events").json()["events"][-1]
        assert last.pop("recorded_at").endswith("Z")
        fields = {"wallet_id": "ada", "deposit_id": "d", "amount": 1, "description": ""}
        assert last == {"position": 2, "type": "DepositMade", **fields}

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[" * 1_000 + b"]" * 1_000,
            b'{"wallet_id":"ada","deposit_id":"d","amount":1e999}',
            b"{}",
            b"7",
            b"\xff",
            b'{"wallet_id":"ada","deposit_id":"\xff","amount":1}',
            b'{"wallet_id":"ada","deposit_id":"d","amount":1}}',
            b'{"wallet_id":"ada","deposit_id":"d","amount":1,"type":"Other","position":99}',
        ],
    )
    def test_what_others_have_stored_and_nobody_can_read_is_a_problem(
        self, ada: Client, data: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        ada.store(deposit_of(data))
        found = problem(ada.get("/api/wallets/ada"), 500, "unreadable-event")
        assert (found["position"], found["event_type"]) == (2, "DepositMade")
        assert found["detail"] in caplog.text

    def test_its_history_goes_on_after_what_cannot_be_read(self, ada: Client) -> None:
        ada.store(deposit_of(b"["))
        ada.store(deposit_of(b'{"wallet_id":"ada","deposit_id":"d","amount":%d}' % 10**30))
        opened, unreadable, last = ada.get("/api/wallets/ada/events").json()["events"]
        assert (opened["type"], last["amount"], last["position"]) == ("WalletOpened", 10**30, 3)
        assert "'DepositMade' at position 2" in unreadable.pop("unreadable")
        assert unreadable.pop("recorded_at").endswith("Z")
        assert unreadable == {"position": 2, "type": "DepositMade"}

    def test_a_balance_may_have_more_than_64_bits(self, ada: Client) -> None:
        ada.store(deposit_of(b'{"wallet_id":"ada","deposit_id":"d","amount":%d}' % 10**30))
        assert balance(ada, "ada") == 100 + 10**30
        body = {"withdrawal_id": "w", "amount": 1}
        assert ada.post("/api/wallets/ada/withdrawals", json=body).status_code == 201

    def test_the_live_stream_goes_on_after_what_cannot_be_read(self, ada: Client) -> None:
        for data in (b"[", b"[" * 1_000, b'{"wallet_id":"ada","deposit_id":"d","amount":%d}' % 10**30):
            ada.store(deposit_of(data))
        kinds = [
            (message.startswith(b"event: unreadable\n"), json.loads(message.partition(b"data: ")[2])["position"])
            for message in ada.live(4)
        ]
        assert kinds == [(False, 1), (True, 2), (True, 3), (False, 4)]


def deposit_of(data: bytes) -> Event:
    return Event("DepositMade", data=data, tags={"wallet_id:ada", "deposit_id:d"})


class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"deposit_id": "d"}, "amount"),
            ({"amount": 5}, "deposit_id"),
            ({"deposit_id": "d", "amount": 0}, "amount"),
            ({"deposit_id": "d", "amount": -5}, "amount"),
            ({"deposit_id": "d", "amount": 1.5}, "amount"),
            ({"deposit_id": "d", "amount": "5"}, "amount"),
            ({"deposit_id": "d", "amount": True}, "amount"),
            ({"deposit_id": "d", "amount": 2**53}, "amount"),
            ({"deposit_id": "", "amount": 5}, "deposit_id"),
            ({"deposit_id": "a b", "amount": 5}, "deposit_id"),
            ({"deposit_id": "d" * 65, "amount": 5}, "deposit_id"),
            ({"deposit_id": "d", "amount": 5, "description": "x" * 501}, "description"),
            ({"deposit_id": "d", "amount": 5, "cursor": -1}, "cursor"),
            ({"deposit_id": "d", "amount": 5, "cursor": MAX_POSITION + 1}, "cursor"),
            ({"deposit_id": "d", "amount": 5, "colour": "red"}, "colour"),
        ],
    )
    def test_names_the_field(self, ada: Client, body: JSON, field: str) -> None:
        refused = problem(ada.post("/api/wallets/ada/deposits", json=body), 422, "invalid-input")
        assert [error["field"] for error in refused["errors"]] == [field]
        assert ada.get("/api/health").json()["head"] == 1

    def test_that_is_no_json_is_refused(self, ada: Client) -> None:
        problem(ada.post("/api/wallets/ada/deposits", content=b"\xff{"), 422, "invalid-input")

    @pytest.mark.parametrize(
        "params",
        [
            {"after": -1},
            {"after": MAX_POSITION + 1},
            {"after": "9" * 5000},
            {"limit": 0},
            {"limit": 1001},
            {"limit": "x"},
        ],
    )
    def test_of_a_query_names_the_field(self, ada: Client, params: JSON) -> None:
        refused = problem(ada.get("/api/wallets/ada/events", params=params), 422, "invalid-input")
        assert [error["field"] for error in refused["errors"]] == list(params)

    def test_the_last_position_of_all_is_a_position(self, ada: Client) -> None:
        page = ada.get("/api/wallets/ada/events", params={"after": MAX_POSITION})
        assert (page.status_code, page.json()["events"]) == (200, [])

    @pytest.mark.parametrize("wrong", ["x", "-1", "", str(MAX_POSITION + 1), "9" * 5000])
    def test_of_the_live_stream_names_the_field(self, ada: Client, wrong: str) -> None:
        refused = problem(ada.get("/api/live", headers={"Last-Event-ID": wrong}), 422, "invalid-input")
        assert [error["field"] for error in refused["errors"]] == ["Last-Event-ID"]
        refused = problem(ada.get("/api/live", params={"after": wrong}), 422, "invalid-input")
        assert [error["field"] for error in refused["errors"]] == ["after"]

    def test_of_a_path_names_the_field(self, ada: Client) -> None:
        refused = problem(ada.get("/api/wallets/a%20b"), 422, "invalid-input")
        assert [error["field"] for error in refused["errors"]] == ["wallet_id"]

    def test_what_is_not_there_is_a_problem_too(self, ada: Client) -> None:
        problem(ada.get("/api/nothing"), 404, "http")
        problem(ada.delete("/api/wallets/ada"), 405, "http")


class TestLargeBodies:
    def test_one_that_says_how_large_it_is_is_refused_unread(self, ada: Client) -> None:
        body = b'{"deposit_id": "d", "amount": 1, "description": "%b"}' % (b"x" * MAX_BODY_BYTES)
        refused = problem(ada.post(DEPOSITS, content=body, headers=JSON_TYPE), 413, "too-large")
        assert refused["limit"] == MAX_BODY_BYTES
        assert str(len(body)) in refused["detail"]

    def test_one_that_comes_in_pieces_is_refused_as_soon_as_it_is_too_large(self, ada: Client) -> None:
        sent = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:  # without an end: only a refusal ends it
                sent += 1_000
                yield b" " * 1_000

        problem(ada.post(DEPOSITS, content=pieces(), headers=JSON_TYPE), 413, "too-large")
        assert sent <= MAX_BODY_BYTES + 2_000

    @pytest.mark.parametrize("declared", ["9" * 5_000, "-1", "x", "1e9"])
    def test_a_length_that_is_none_is_not_believed(self, ada: Client, declared: str) -> None:
        headers = {**JSON_TYPE, "Content-Length": declared}
        body = b'{"deposit_id": "d", "amount": 1}'
        assert ada.post(DEPOSITS, content=body, headers=headers).status_code == 201

    def test_the_largest_body_is_taken(self, ada: Client) -> None:
        body = b'{"deposit_id": "d", "amount": 1}'.ljust(MAX_BODY_BYTES)
        assert ada.post(DEPOSITS, content=body, headers=JSON_TYPE).status_code == 201


class TestStoreFailures:
    """What is said of an operation when the store fails: what is known, and no more."""

    @pytest.mark.parametrize(
        ("error", "status", "kind"),
        [
            (StoreUnavailable("the connection ended"), 503, "unavailable"),
            (StoreClosed("the store is closed"), 503, "unavailable"),
            (StoreError("the disk failed"), 500, "store-failed"),
        ],
    )
    def test_the_outcome_of_an_operation_is_unknown(
        self, ada: Client, error: StoreError, status: int, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def failing(self: aio.AsyncEventStore, *args: Any, **options: Any) -> None:
            raise error

        body = {"deposit_id": "d", "amount": 1}
        with monkeypatch.context() as patched:
            patched.setattr(aio.AsyncEventStore, "append", failing)
            refused = problem(ada.post(DEPOSITS, json=body), status, kind)
        assert refused["outcome"] == "unknown"
        assert "unknown whether the operation was applied" in refused["detail"]
        assert "send the same request again" in refused["detail"]
        assert "nothing was applied" not in refused["detail"]
        assert ada.post(DEPOSITS, json=body).status_code == 201

    def test_of_a_reading_nothing_is_unknown(self, ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        async def failing(self: aio.AsyncEventStore) -> int:
            raise StoreUnavailable("out of reach")

        monkeypatch.setattr(aio.AsyncEventStore, "head", failing)
        refused = problem(ada.get("/api/health"), 503, "unavailable")
        assert "outcome" not in refused
        assert "applied" not in refused["detail"]


class TestAround:
    def test_health_says_how_far_the_store_reaches(self, ada: Client) -> None:
        assert ada.get("/api/health").json() == {"status": "ok", "head": 1}

    def test_the_interface_describes_itself(self, client: Client) -> None:
        paths = client.get("/openapi.json").json()["paths"]
        assert paths["/api/wallets/{wallet_id}/withdrawals"]["post"]["responses"].keys() >= {
            "200",
            "201",
            "404",
            "409",
            "422",
        }
        (if_match,) = [
            parameter for parameter in paths["/api/transfers"]["post"]["parameters"] if parameter["name"] == "If-Match"
        ]
        assert if_match["in"] == "header"
        assert {path: set(verbs) for path, verbs in paths.items()} == {
            "/api/wallets/{wallet_id}": {"put", "get"},
            "/api/wallets/{wallet_id}/deposits": {"post"},
            "/api/wallets/{wallet_id}/withdrawals": {"post"},
            "/api/wallets/{wallet_id}/events": {"get"},
            "/api/transfers": {"post"},
            "/api/health": {"get"},
            "/api/live": {"get"},
        }

    def test_the_page_is_served_and_loads_nothing_from_elsewhere(self, client: Client) -> None:
        response = client.get("/")
        assert response.headers["content-type"].startswith("text/html")
        assert 'new EventSource("api/live")' in response.text
        assert "http://" not in response.text
        assert "https://" not in response.text
