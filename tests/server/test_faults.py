"""Faults between client and server: nothing is lost, nothing is stored twice, no conflict is missed or invented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.fault_proxy import FAULTS, FaultProxy
from tests.support.races import balances, race

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Placed, Put, Query, Record, StoreUnavailable
from fencepost.core.verdicts import Append
from fencepost.engine import append_each
from fencepost.server.remote import engine
from fencepost.testing.clients import ClientStore
from fencepost.testing.contract.base import no_new, tagged, types
from fencepost.testing.history import check

from .running import RunningServer


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server.port)
    yield proxy
    proxy.close()


class WithIds(ClientStore):
    """Gives an id to each event that has none, so that a lost append can be repeated."""

    def append(self, events: Iterable[Event], *args: Any, **options: Any) -> Placed:
        named = [
            Event(event.type, data=event.data, tags=event.tags, id=event.id or uuid4(), metadata=event.metadata)
            for event in events
        ]
        return super().append(named, *args, **options)


@pytest.mark.parametrize("seed", [1, 2])
def test_appends_with_ids_survive_every_fault(server: RunningServer, seed: int) -> None:
    proxy = FaultProxy(server.port, share=0.3, seed=seed)
    with fencepost.open(proxy.url, patience_s=60) as store:
        histories = race(store, threads=6, rounds=25, kind=WithIds)
    proxy.close()
    assert set(proxy.done) >= {*FAULTS, "pass"}
    with fencepost.open(server.url) as direct:
        log = list(direct.read())
    assert check(histories, log) == []
    assert all(min(course) >= 0 for course in balances(log).values())


def test_appends_without_ids_are_stored_at_most_once_and_say_if_it_is_unknown(server: RunningServer) -> None:
    proxy = FaultProxy(server.port, faults=("lose", "lose_answer", "half", "delay"), share=0.4)
    unknown: list[str] = []
    with fencepost.open(proxy.url, patience_s=60) as store:
        recorder = ClientStore(store, "blind")
        for number in range(80):
            query = Query.of(tags={f"seat:{number % 20}"})
            condition = AppendCondition(query) if number % 2 else None
            with suppress(ConditionFailed):
                try:
                    recorder.append([Event("Taken", tags={f"seat:{number % 20}"}) for _ in range(2)], condition)
                except StoreUnavailable as error:
                    unknown.append(str(error))
    proxy.close()
    with fencepost.open(server.url) as direct:
        assert check([recorder.history], list(direct.read())) == []
    assert unknown
    assert all("the append's outcome is unknown" in error for error in unknown)


def test_a_lost_answer_is_settled_by_the_ids(server: RunningServer, proxy: FaultProxy) -> None:
    event = Event("Reserved", tags={"seat:1"}, id=uuid4())
    with fencepost.open(proxy.url) as store:
        proxy.plan("/v1/appends", "lose_answer", "half", "lose")
        assert store.append([event], no_new(tagged("seat:1"))) == Placed(1, 1)
        assert store.append([event], no_new(tagged("seat:1"))) == Placed(1, 1, already=True)
        assert types(store.read()) == ["Reserved"]


def test_a_lost_answer_about_a_record_is_not_repeated_and_says_so(server: RunningServer, proxy: FaultProxy) -> None:
    with fencepost.open(proxy.url) as store:
        proxy.plan("/v1/appends", "lose_answer")
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            store.records.put("lease", b"mine", expected=0)
        assert store.records.get("lease") == Record("lease", b"mine", 1)
        proxy.plan("/v1/appends", "lose_answer")
        placed = store.append([Event("A", id=uuid4())], records=[Put("lease", b"again", 1)])
        assert placed == Placed(1, 1, already=True)
        assert store.records.get("lease") == Record("lease", b"again", 2)


def test_a_retry_does_not_claim_the_event_of_another_client(server: RunningServer, proxy: FaultProxy) -> None:
    """The first try is lost on its way; meanwhile another client stores what `unless` asks for."""
    unless = Query.of(tags={"command:1"})
    with fencepost.open(proxy.url) as store, fencepost.open(server.url) as other:
        lost = LostMeanwhile(server, proxy, lambda: other.append([Event("Theirs", tags={"command:1"})]))
        proxy.plan("/v1/appends", "lose")
        proxy.target = lost.port
        placed = store.append([Event("Ours", tags={"command:1"}, id=uuid4())], unless=unless)
        assert placed == Placed(1, 1, already=True)
        assert types(store.read()) == ["Theirs"]


class LostMeanwhile(FaultProxy):
    """Stands before the server, and does something before it forwards the first append."""

    def __init__(self, server: RunningServer, proxy: FaultProxy, act: Any) -> None:
        super().__init__(server.port)
        self._act = act

    def _fault(self, request: bytes) -> str:
        if b"/v1/appends" in request[:100] and self._act is not None:
            act, self._act = self._act, None
            act()
        return super()._fault(request)


def test_an_append_that_was_lost_before_the_server_went_away_is_unknown(tmp_path: Path) -> None:
    server = RunningServer(str(tmp_path / "wallet.db"))
    proxy = FaultProxy(server.port)
    with fencepost.open(proxy.url, patience_s=0.5) as store:
        proxy.plan("/v1/appends", "lose_answer")
        proxy.plan("/v1/appends", *["lose"] * 100)
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            store.append([Event("Reserved", id=uuid4())])
    proxy.close()
    server.stop()


def test_a_server_that_cannot_be_reached_after_a_lost_answer_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    server = RunningServer(str(tmp_path / "wallet.db"))
    proxy = FaultProxy(server.port)
    with fencepost.open(proxy.url, patience_s=0.5) as store:
        proxy.plan("/v1/appends", "lose_answer")
        original = proxy._forwarded

        def forwarded_once(*args: Any) -> Any:
            proxy.close()  # the next connection is refused
            return original(*args)

        proxy._forwarded = forwarded_once  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            store.append([Event("Reserved", id=uuid4())])
    server.stop()


def test_a_batch_larger_than_a_request_is_sent_in_parts(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "REQUEST_BYTES", 100)
    sizes = [60, 60, 10, 250, 10]
    with fencepost.open(server.url) as store:
        verdicts = append_each(store, (Append((Event("A", data=b"x" * size),)) for size in sizes))
        assert [verdict.last for verdict in verdicts if isinstance(verdict, Placed)] == [1, 2, 3, 4, 5]
        assert [len(event.data) for event in store.read()] == sizes


def test_a_reading_survives_faults_on_each_of_its_pages(server: RunningServer, proxy: FaultProxy) -> None:
    with fencepost.open(server.url) as direct:
        direct.append([Event("T", data=b"%d" % number) for number in range(9_000)])
    with fencepost.open(proxy.url) as store:
        proxy.plan("/v1/read", "half", "lose", "lose_answer", "pass", "half", "pass", "lose")
        assert [int(event.data) for event in store.read()] == list(range(9_000))


def test_a_page_of_another_server_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    """A gateway that answers for the server with 502, or with a page of its own."""
    server = RunningServer(str(tmp_path / "wallet.db"))
    gateway = Gateway(server.port)
    with fencepost.open(gateway.url, patience_s=2) as store:
        gateway.page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno"
        with pytest.raises(StoreUnavailable, match="outcome is unknown"):
            store.append([Event("Reserved")])
        gateway.page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
        with pytest.raises(StoreUnavailable, match="not as a Fencepost server does"):
            list(store.read())
        gateway.page = b""
        with suppress(StoreUnavailable):
            store.append([Event("Reserved")])
    gateway.close()
    server.stop()


class Gateway(FaultProxy):
    page = b""

    def _forwarded(self, request: bytes, server: Any) -> Any:
        return (self.page, server) if self.page else super()._forwarded(request, server)
