"""API keys: what they allow, how they are kept, and what a key with a scope can learn."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

import fencepost
from fencepost import (
    AccessDenied,
    AppendCondition,
    ConditionFailed,
    Event,
    IdsOverlap,
    InvalidInput,
    Placed,
    Query,
    QueryItem,
    RecordChanged,
)
from fencepost.engine import Append, open_engine
from fencepost.server.access import ALL_RIGHTS, Right
from fencepost.server.keys import KeyFile, add_key, read_keys, revoke_key
from fencepost.testing.faults import FaultyEngine

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


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_the_open_streams_of_a_key_end_with_the_key(tmp_path: Path, keys: Path, accept: str, how: str) -> None:
    expires = datetime.now(timezone.utc) + timedelta(seconds=2) if how == "expired" else None
    secret = add_key(keys, "guest", rights=READ_APPEND, expires=expires).secret
    headers = {"Authorization": f"Bearer {secret}", "Accept": accept}
    with (
        RunningServer("memory:", keys=str(keys), heartbeat_s=600) as server,
        httpx.stream("GET", f"{server.url}/v1/subscribe", headers=headers, timeout=20) as answer,
    ):
        assert answer.status_code == 200
        if how == "revoked":
            revoke_key(keys, "guest")
        assert "urn:fencepost:unauthenticated" in answer.read().decode()


def test_a_request_that_waits_for_a_head_ends_with_the_key(keys: Path) -> None:
    secret = add_key(
        keys, "guest", rights=READ_APPEND, expires=datetime.now(timezone.utc) + timedelta(seconds=2)
    ).secret
    with RunningServer("memory:", keys=str(keys)) as server:
        answer = httpx.get(
            f"{server.url}/v1/head?after=0&wait_s=6", headers={"Authorization": f"Bearer {secret}"}, timeout=20
        )
    assert answer.status_code == 401


@pytest.mark.parametrize("damage", ["broken", "missing", "unknown right"])
def test_a_broken_file_of_keys_changes_nothing_and_is_not_shown_to_clients(
    guarded: RunningServer, keys: Path, admin: str, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    if damage == "broken":
        keys.write_text("[{]")
    elif damage == "missing":
        keys.unlink()
    else:
        keys.write_text(keys.read_text().replace('"admin"', '"own"'))
    time.sleep(1.1)
    with httpx.Client(base_url=guarded.url) as http:
        answers = [http.get("/v1/head", headers={"Authorization": f"Bearer {key}"}) for key in (admin, admin, "fp_x")]
    assert [answer.status_code for answer in answers] == [200, 200, 401]
    assert not any(str(keys) in answer.text for answer in answers)
    assert len([record for record in caplog.records if "keys from before stay in force" in record.message]) == 1


def test_a_file_of_keys_that_does_not_exist_is_refused_at_the_start(keys: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        RunningServer("memory:", keys=str(keys))


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
        subscription = tenant.subscribe(timeout_s=5)
        assert next(subscription).position == 1
        with opened(guarded, admin) as everything:
            everything.append([Event("A", tags={"tenant:other"}), Event("C", tags={"tenant:acme"})])
        assert next(subscription).position == 5

    def test_checkpoints_are_apart(self, tenant: fencepost.EventStore, guarded: RunningServer, admin: str) -> None:
        tenant.append([], checkpoint=("reader", 5))
        assert tenant.checkpoint("reader") == 5
        with opened(guarded, admin) as everything:
            assert everything.checkpoint("reader") == 0
            assert everything.checkpoint("acme/reader") == 0
            everything.append([], checkpoint=("acme/reader", 9))
            with pytest.raises(InvalidInput, match="scope"):
                everything.append([], checkpoint=("fencepost.scope/x", 9))
        assert tenant.checkpoint("reader") == 5

    def test_event_ids_are_apart(self, tenant: fencepost.EventStore, guarded: RunningServer, admin: str) -> None:
        id = UUID(int=7)
        with opened(guarded, admin) as everything:
            everything.append([Event("A", tags={"tenant:other"}, id=id)])
        mine = Event("A", tags={"tenant:acme"}, id=id, metadata={"by": "ada"})
        placed = tenant.append([mine])
        assert not placed.already
        assert tenant.append([mine]) == Placed(placed.first, placed.last, True)
        (*_, found) = tenant.read()
        assert (found.id, found.metadata) == (id, {"by": "ada"})
        with pytest.raises(IdsOverlap) as overlap:
            tenant.append([mine, Event("A", tags={"tenant:acme"}, id=UUID(int=8))])
        assert (overlap.value.stored, overlap.value.missing) == (id, UUID(int=8))
        with pytest.raises(ConditionFailed) as failed:
            tenant.append([Event("A", tags={"tenant:acme"})], AppendCondition(Query.all(), after=placed.first - 1))
        assert failed.value.conflict.id == id

    def test_the_tag_of_the_scope_does_not_count_into_the_limit_of_a_query(self, tenant: fencepost.EventStore) -> None:
        tags = {f"t{number}" for number in range(20)}
        assert list(tenant.read(Query.of(tags=tags))) == []
        most = Event("A", tags={"tenant:acme", *list(tags)[:19]})
        condition = AppendCondition(Query([QueryItem(tags=tags), QueryItem(tags=most.tags)]))
        assert tenant.append([most], condition).last == 4
        assert [event.position for event in tenant.read(Query.of(tags=list(tags)[:19]))] in ([4], [])

    def test_records_are_apart(self, tenant: fencepost.EventStore, guarded: RunningServer, admin: str) -> None:
        own = tenant.records.put("lease", b"tenant", expected=0)
        with opened(guarded, admin) as everything:
            assert everything.records.get("lease") is None
            others = everything.records.put("lease", b"admin", expected=0)
            with pytest.raises(InvalidInput, match="scope"):
                everything.records.put("fencepost.scope/other/lease", b"other", expected=0)
            assert [record.name for record in everything.records.list("lease")] == ["lease"]
        assert list(tenant.records.list()) == [own]
        with pytest.raises(RecordChanged) as refused:
            tenant.records.put("lease", b"stale", expected=own.revision + 1)
        assert (refused.value.name, refused.value.current) == ("lease", own)
        tenant.records.delete("lease", expected=own.revision)
        with opened(guarded, admin) as everything:
            assert list(everything.records.list()) == [others]

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


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_an_event_inside_the_scope_that_is_not_in_a_reading_is_above_its_head(keys: Path, accept: str) -> None:
    """It is stored after the events were read, and before the head of the scope was looked up."""
    secret = add_key(keys, "acme", rights=READ_APPEND, tags=frozenset({"tenant:acme"})).secret
    inside = Append((Event("A", tags={"tenant:acme"}),))
    engine = FaultyEngine(open_engine("memory:"))
    engine.commit([inside])
    scans: list[int] = []

    def store_before_the_second_scan() -> None:
        scans.append(1)
        if len(scans) == 2:
            engine.engine.commit([inside])

    engine.before_scan = store_before_the_second_scan
    headers = {"Authorization": f"Bearer {secret}", "Accept": accept}
    with RunningServer("memory:", engine=engine, keys=str(keys)) as server:
        lines = httpx.get(f"{server.url}/v1/events", headers=headers).text.splitlines()
    assert len(scans) == 2
    assert json.loads(lines[-1])["head"] == 1
