"""/v1/verify checks the store that is served, of every engine, and streams how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from typing import Any

import apsw
import httpx
import pytest

import fencepost
from fencepost import Event
from fencepost.server import verification
from fencepost.server.access import Right
from fencepost.server.keys import add_key

from .running import RunningServer

RESULT = {"sound": True, "events": 20, "problems": []}


def verified(server: RunningServer, **headers: str) -> list[Any]:
    with httpx.stream("POST", f"{server.url}/v1/verify", headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.iter_lines()]


def filled(server: RunningServer, count: int = 20) -> None:
    with fencepost.open(server.url) as store:
        store.append([Event("T", tags={f"t:{number}"}) for number in range(count)])


def result(lines: list[Any]) -> dict[str, Any]:
    return {name: lines[-1][name] for name in RESULT}


def test_a_sound_sqlite_file_is_called_sound(server: RunningServer) -> None:
    filled(server)
    lines = verified(server)
    assert result(lines) == RESULT
    assert lines[-1]["checkpoints"] == 0


def test_a_store_in_memory_is_checked_by_reading_it() -> None:
    with RunningServer("memory:") as server:
        filled(server)
        assert result(verified(server)) == RESULT


def test_a_postgresql_store_is_checked_by_reading_it(postgres_url: str) -> None:
    address = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=verified"
    fencepost.open(address, create=True).close()
    with RunningServer(address) as server:
        filled(server)
        assert result(verified(server)) == RESULT


def test_damage_in_an_sqlite_file_is_named(server: RunningServer, tmp_path: Path) -> None:
    filled(server)
    connection = apsw.Connection(str(tmp_path / "wallet.db"))  # the library of the server: its locks stay
    connection.execute("DELETE FROM events WHERE position = 7")
    connection.close()
    last = verified(server)[-1]
    assert last["sound"] is False
    assert any("7" in problem for problem in last["problems"])


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flag]:
    """Verifications do not end before the flag is set, and see that their result is not wanted any more."""
    released, check = Flag(), verification.verify

    def slow(address: str, *, on_progress: Callable[[int, int], None]) -> Any:
        while not released.wait(0.02):
            on_progress(7, 20)
        return check(address, on_progress=on_progress)

    monkeypatch.setattr(verification, "verify", slow)
    yield released
    released.set()


def test_lines_say_how_far_it_is_and_one_runs_at_a_time(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(server)
    with held(monkeypatch) as released, httpx.stream("POST", f"{server.url}/v1/verify", timeout=60) as answer:
        lines = (json.loads(line) for line in answer.iter_lines())
        assert next(lines) == {"done": 7, "of": 20}
        second = httpx.post(f"{server.url}/v1/verify")
        assert (second.status_code, second.json()["type"]) == (503, "urn:fencepost:busy")
        assert int(second.headers["retry-after"]) > 0
        released.set()
        assert result(list(lines)) == RESULT
    assert result(verified(server)) == RESULT


def test_a_client_that_goes_away_ends_the_check(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(server)
    with held(monkeypatch) as released:
        with httpx.stream("POST", f"{server.url}/v1/verify", timeout=60) as answer:
            next(answer.iter_lines())
        # The next check is refused until the first one has noticed.
        for _ in range(1_000):
            with httpx.stream("POST", f"{server.url}/v1/verify", timeout=60) as again:
                if again.status_code == 200:
                    released.set()
                    assert json.loads(list(again.iter_lines())[-1])["sound"] is True
                    return
    pytest.fail("the check goes on without its client")


def test_a_server_that_drains_says_that_the_check_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RunningServer(str(tmp_path / "wallet.db"))
    filled(server)
    with held(monkeypatch), httpx.stream("POST", f"{server.url}/v1/verify", timeout=60) as answer:
        lines = (json.loads(line) for line in answer.iter_lines())
        next(lines)
        server.stop_soon()
        last = list(lines)[-1]
    server.stop()
    assert last["error"]["type"] == "urn:fencepost:unavailable"


def test_a_scope_or_a_key_without_admin_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    service = add_key(keys, "service", rights=frozenset({Right.READ, Right.APPEND})).secret
    tenant = add_key(keys, "tenant", rights=frozenset(Right), tags=frozenset({"a"})).secret
    operator = add_key(keys, "operator", rights=frozenset({Right.ADMIN})).secret
    with RunningServer("memory:", keys=str(keys)) as server:
        for secret in (service, tenant):
            headers = {"Authorization": f"Bearer {secret}"}
            assert httpx.post(f"{server.url}/v1/verify", headers=headers).status_code == 403
        assert verified(server, authorization=f"Bearer {operator}")[-1]["sound"] is True
