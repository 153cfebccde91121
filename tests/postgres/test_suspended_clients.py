"""A client that holds the lock of the store and does not go on, or is slow: other clients wait for a limited time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from tests.postgres.conftest import with_option
from tests.postgres.stepping import hand

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, InvalidInput, Query, QueryItem, StoreUnavailable
from fencepost.core.verdicts import Append
from fencepost.engines.postgres import committer
from fencepost.engines.postgres.recorded_appends import RecordedAppends
from fencepost.testing.contract.base import Running, events, no_new, tagged, types
from fencepost.testing.faults import PATIENCE_S


class Suspension:
    """Suspends the first thread that gets here, until `resume`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.resume = threading.Event()

    def before(self, call: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
        def suspended(*args: Any) -> Any:
            if when(*args) and not self.reached.is_set():
                self.reached.set()
                assert self.resume.wait(PATIENCE_S)
            return call(*args)

        return suspended


@pytest.mark.parametrize("kind", ["recording", "large"])
def test_the_server_ends_the_transaction_of_a_client_that_is_suspended_between_two_calls(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    suspension = Suspension()
    if kind == "recording":
        monkeypatch.setattr(RecordedAppends, "keep", suspension.before(RecordedAppends.keep, lambda *_: True))
    else:
        monkeypatch.setattr(committer, "CALL_EVENTS", 2)
        second = suspension.before(committer.encode_chunk, lambda append, begin, *_: begin > 0)
        monkeypatch.setattr(committer, "encode_chunk", second)
    with (
        fencepost.open(url, record_conditions=kind == "recording", patience_s=2) as suspended,
        fencepost.open(url, patience_s=2 * PATIENCE_S) as other,
    ):
        append = Running(lambda: suspended.append(events("Suspended", count=3)))
        assert suspension.reached.wait(PATIENCE_S)
        assert other.append(events("Other")).last == 1
        suspension.resume.set()
        with pytest.raises(StoreUnavailable, match=r"suspended|ended"):
            append.result()
        assert types(other.read()) == ["Other"]
        assert suspended.append([Event("Later", id=uuid4())]).last == 2


@pytest.mark.parametrize("count", [1, 2])
def test_an_append_waits_for_the_lock_no_longer_than_its_patience(
    database_url: str, url: str, schema: str, count: int
) -> None:
    with fencepost.open(url, patience_s=0.2) as store:
        with hand(database_url, schema) as other:
            other.append(Append((Event("Other"),)))
            with pytest.raises(StoreUnavailable, match=r"held the lock .* patience_s"):
                store.append(events("A", count=count), no_new(tagged("a")))
        assert types(store.read()) == ["Other"]
        store.append(events("A", count=count))


def test_the_lock_timeout_of_the_role_applies_if_it_is_shorter(database_url: str, url: str, schema: str) -> None:
    address = with_option(url, "options", "-clock_timeout%3D200")
    with fencepost.open(address, patience_s=PATIENCE_S * 10) as store, hand(database_url, schema) as other:
        other.append(Append((Event("Other"),)))
        with pytest.raises(StoreUnavailable, match="lock_timeout"):
            store.append(events("A"))


@pytest.mark.parametrize("patience_s", [-1.0, float("inf"), float("nan"), 1e9])
def test_a_patience_that_no_timeout_can_have_is_refused(url: str, patience_s: float) -> None:
    with pytest.raises(InvalidInput, match="patience_s"):
        fencepost.open(url, patience_s=patience_s)


@pytest.mark.parametrize("count", [1, 2])
def test_a_condition_of_many_tags_is_searched_before_the_lock_is_taken(
    database_url: str, url: str, schema: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Under the lock, the server searches only the events that were stored since."""
    searched = AppendCondition(Query([QueryItem(tags=["a", f"b:{n}"], types=["A"]) for n in range(100)]), after=0)
    with fencepost.open(url, patience_s=PATIENCE_S) as store, fencepost.open(url) as other:
        other.append(events("A", "a", count=10))
        sent: list[list[int]] = []
        encode = committer.encode_batch

        def note(appends: Any, afters: Any) -> list[bytes]:
            sent.extend(afters.values())
            other.append(events("A", "a"))  # between the search and the lock
            return encode(appends, afters)

        monkeypatch.setattr(committer, "encode_batch", note)
        assert store.append(events("A", "b:1", count=count), searched).last == 11 + count
        assert sent == [[10] * 100]


def test_a_condition_of_many_tags_fails_for_what_is_stored_before_and_after_its_search(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query([QueryItem(tags=["a", f"b:{n}"]) for n in range(100)])
    with fencepost.open(url) as store, fencepost.open(url) as other:
        other.append(events("A", "a", count=10))
        other.append(events("B", "a", "b:7"))
        other.append(events("C", "a", "b:8"))
        with pytest.raises(ConditionFailed) as failed:
            store.append(events("Late"), [no_new(tagged("x")), AppendCondition(query, after=3)])
        assert failed.value.conflict.position == 11
        assert failed.value.condition == AppendCondition(query, after=3)
        assert store.append(events("Late"), unless=query).first == 11
        encode = committer.encode_batch

        def late(appends: Any, afters: Any) -> list[bytes]:
            other.append(events("D", "a", "b:9"))
            return encode(appends, afters)

        monkeypatch.setattr(committer, "encode_batch", late)
        with pytest.raises(ConditionFailed) as failed:
            store.append(events("Late"), AppendCondition(query, after=12))
        assert failed.value.conflict.position == 13
