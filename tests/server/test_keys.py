"""API keys: what they allow, how they are kept, and what a key with a scope can learn."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

import fencepost
from fencepost import AccessDenied, AppendCondition, ConditionFailed, Event, InvalidInput, Query
from fencepost.server.access import ALL_RIGHTS, Right
from fencepost.server.keys import KeyFile, add_key, read_keys, revoke_key

from .running import RunningServer

READ_APPEND = frozenset({Right.READ, Right.APPEND})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def admin(keys: Path) -> str:
    return add_key(keys, "admin", rights=ALL_RIGHTS).secret


@pytest.fixture
def guarded(tmp_path: Path, keys: Path, admin: str) -> Iterator[RunningServer]:
    with RunningServer(str(tmp_path / "wallet.db"), keys=str(keys), heartbeat_s=0.2) as running:
        yield running


def opened(server: RunningServer, key: str) -> fencepost.EventStore:
    return fencepost.open(server.url, key=key, patience_s=0)


def test_without_a_key_nothing_is_answered_but_health_and_documentation(guarded: RunningServer) -> None:
    with httpx.Client(base_url=guarded.url) as http:
        for path in ("/v1/head", "/v1/events", "/metrics", "/v1/checkpoints/a"):
            assert http.get(path).json()["type"] == "urn:fencepost:unauthenticated"
        for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
            assert http.get(path).status_code == 200
        answers = [http.get("/v1/head", headers={"Authorization": given}) for given in ("Bearer fp_x", "Basic YTpi")]
        assert [answer.status_code for answer in answers] == [401, 401]


def test_a_key_opens_the_store(guarded: RunningServer, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(guarded, admin) as store:
        assert store.append([Event("A")]).last == 1
    with fencepost.open(guarded.url.replace("//", f"//{admin}@")) as store:
        assert store.head() == 1
    monkeypatch.setenv("FENCEPOST_API_KEY", admin)
    with fencepost.open(guarded.url) as store:
        assert store.head() == 1
    monkeypatch.setenv("FENCEPOST_API_KEY", "fp_wrong")
    with pytest.raises(AccessDenied):
        fencepost.open(guarded.url)


def test_a_right_that_is_missing_is_named(guarded: RunningServer, keys: Path) -> None:
    reader = add_key(keys, "reader", rights=frozenset({Right.READ})).secret
    time.sleep(1.1)  # the server looks at the file every second
    with opened(guarded, reader) as store:
        with pytest.raises(AccessDenied, match="'reader' has no right to append"):
            store.append([Event("A")])
        assert store.head() == 0
    writer = add_key(keys, "writer", rights=frozenset({Right.APPEND})).secret
    time.sleep(1.1)
    answer = httpx.get(f"{guarded.url}/v1/events", headers={"Authorization": f"Bearer {writer}"})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:fencepost:forbidden")


def test_a_key_is_revoked_without_a_restart(guarded: RunningServer, keys: Path) -> None:
    secret = add_key(keys, "guest", rights=READ_APPEND).secret
    time.sleep(1.1)
    with opened(guarded, secret) as store:
        assert store.head() == 0
        revoke_key(keys, "guest")
        time.sleep(1.1)
        with pytest.raises(AccessDenied):
            store.head()


def test_a_key_expires(keys: Path) -> None:
    past = add_key(keys, "old", rights=READ_APPEND, expires=datetime.now(timezone.utc) - timedelta(seconds=1)).secret
    future = add_key(keys, "new", rights=READ_APPEND, expires=datetime.now(timezone.utc) + timedelta(days=1)).secret
    found = KeyFile(keys)
    assert found.find(past) is None
    assert found.find(future) is not None


def test_the_file_holds_hashes_alone_and_is_private(keys: Path) -> None:
    made = add_key(keys, "one", rights=READ_APPEND)
    assert made.secret not in keys.read_text()
    assert made.secret not in repr(made)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert [key.name for key in read_keys(keys)] == ["one"]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 65, "ü"])
def test_a_name_that_could_be_mistaken_is_refused(keys: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        add_key(keys, name, rights=READ_APPEND)
    assert not keys.exists()


def test_a_name_is_given_once(keys: Path) -> None:
    add_key(keys, "one", rights=READ_APPEND)
    with pytest.raises(InvalidInput, match="already"):
        add_key(keys, "one", rights=READ_APPEND)


class TestScope:
    @pytest.fixture
    def tenant(self, guarded: RunningServer, keys: Path, admin: str) -> Iterator[fencepost.EventStore]:
        """A store as the tenant sees it. The log has events of others."""
        secret = add_key(keys, "acme", rights=READ_APPEND, tags=frozenset({"tenant:acme"})).secret
        time.sleep(1.1)
        with opened(guarded, admin) as everything:
            everything.append([Event("A", tags={"tenant:acme"}), Event("A", tags={"tenant:other"}), Event("B")])
        with opened(guarded, secret) as store:
            yield store

    def test_only_events_inside_are_read(self, tenant: fencepost.EventStore) -> None:
        assert [event.position for event in tenant.read()] == [1]
        assert list(tenant.read(Query.of(tags={"tenant:other"}))) == []
        assert [event.position for event in tenant.read(Query.of(types={"A", "B"}), backwards=True)] == [1]

    def test_the_head_is_that_of_the_events_inside(self, tenant: fencepost.EventStore) -> None:
        assert tenant.head() == 1
        assert tenant.read().head == 1

    def test_an_event_outside_is_not_stored(self, tenant: fencepost.EventStore) -> None:
        for outside in (Event("A"), Event("A", tags={"tenant:other"})):
            with pytest.raises(AccessDenied, match="scope"):
                tenant.append([Event("A", tags={"tenant:acme"}), outside])
        assert tenant.head() == 1

    def test_a_condition_does_not_see_events_outside(self, tenant: fencepost.EventStore) -> None:
        all_new = AppendCondition(Query.all(), after=1)
        assert tenant.append([Event("A", tags={"tenant:acme"})], all_new).last == 4
        with pytest.raises(ConditionFailed) as failed:
            tenant.append([Event("A", tags={"tenant:acme"})], all_new)
        assert failed.value.condition == all_new
        assert failed.value.conflict.position == 4
        assert (
            tenant.append([Event("A", tags={"tenant:acme"})], unless=Query.of(tags={"tenant:other"})).already is False
        )

    def test_a_subscription_gives_events_inside_alone(
        self, tenant: fencepost.EventStore, guarded: RunningServer, admin: str
    ) -> None:
        subscription = tenant.subscribe(timeout=5)
        assert next(subscription).position == 1
        with opened(guarded, admin) as everything:
            everything.append([Event("A", tags={"tenant:other"}), Event("C", tags={"tenant:acme"})])
        assert next(subscription).position == 5

    def test_checkpoints_are_apart(self, tenant: fencepost.EventStore, guarded: RunningServer, admin: str) -> None:
        tenant.append([], checkpoint=("reader", 5))
        assert tenant.checkpoint("reader") == 5
        with opened(guarded, admin) as everything:
            assert everything.checkpoint("reader") == 0

    def test_what_concerns_the_whole_store_is_refused(self, guarded: RunningServer, keys: Path) -> None:
        secret = add_key(keys, "small", rights=ALL_RIGHTS, types=frozenset({"A"})).secret
        time.sleep(1.1)
        with httpx.Client(base_url=guarded.url, headers={"Authorization": f"Bearer {secret}"}) as http:
            assert http.get("/v1/recorded").status_code == 403
            assert http.get("/metrics").status_code == 403
            assert http.post("/v1/restore", content=b"\x92\x90\x90").status_code == 403


def test_nothing_secret_is_in_a_log_or_an_error(
    guarded: RunningServer, admin: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AccessDenied) as refused:
        opened(guarded, "fp_verysecret")
    shown: list[Any] = [caplog.text, str(refused.value), repr(refused.value)]
    assert not any("verysecret" in text for text in shown)
