"""What the store does above every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fencepost
import fencepost.aio
from fencepost import Event, EventStore, InvalidInput, Query, StoreClosed, StoreCorrupt
from fencepost.core import owner
from fencepost.core.engine import Capability
from fencepost.core.group_commit import BATCH_EVENTS
from fencepost.core.verdicts import Append, Behind, Conflict, Verdict
from fencepost.decisions import event
from fencepost.engine import append_each, engine_of
from fencepost.engines.memory import MemoryEngine
from fencepost.model import AppendCondition, Placed
from fencepost.testing.contract.base import Running, events


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


def test_a_store_is_closed_at_the_end_of_its_with_block() -> None:
    with fencepost.open("memory:") as store:
        store.append(events("A"))
    with pytest.raises(StoreClosed):
        store.head()


def test_a_store_refuses_to_work_in_a_forked_child(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(events("A"))
    monkeypatch.setattr(owner, "_this_process", -1)
    with pytest.raises(StoreClosed, match="forked"):
        store.append(events("A"))
    store.close()  # the child must not close what its parent still uses
    monkeypatch.undo()
    assert store.head() == 1


def test_a_really_forked_child_is_told_and_its_parent_goes_on(store: EventStore) -> None:
    store.append(events("A"))
    child = os.fork()
    if child == 0:
        try:
            store.head()
        except StoreClosed:
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert store.append(events("A")).first == 2


def test_an_engine_that_does_its_own_batching_is_given_each_append_alone() -> None:
    class Alone(MemoryEngine):
        capabilities = Capability.NONE  # type: ignore[assignment,misc]
        batches: list[int] = []  # noqa: RUF012

        def commit(self, appends):  # type: ignore[no-untyped-def]
            self.batches.append(len(appends))
            return super().commit(appends)

    with EventStore(Alone()) as store:
        store.append(events("A"))
        store.append(events("A"), AppendCondition(Query.all(), after=1))
        assert Alone.batches == [1, 1]


def test_a_conflict_that_is_not_in_the_log_is_corruption_not_a_refusal(store: EventStore) -> None:
    with pytest.raises(StoreCorrupt, match="position 5"):
        store._commits.result(Conflict(AppendCondition(Query.all()), 5))


def test_an_append_is_one_value_that_cannot_be_changed() -> None:
    append = Append((Event("A"),))
    with pytest.raises(AttributeError):
        append.events = ()  # type: ignore[misc]


def test_a_changed_value_of_one_append_does_not_fail_another_in_its_batch(tmp_path: Path) -> None:
    changed = Event("B", metadata={"by": "Ada"})
    changed.metadata["by"] = object()  # type: ignore[assignment]
    with fencepost.open(tmp_path / "log") as store:
        append_each(store, [Append((Event("A"),)), Append((changed,)), Append((Event("C"),))])
        assert [(event.type, event.metadata) for event in store.read()] == [("A", {}), ("B", {"by": "Ada"}), ("C", {})]


def test_a_typed_event_is_refused_with_what_to_do(store: EventStore) -> None:
    @event
    class Opened:
        wallet: str

    with pytest.raises(InvalidInput, match=r"events\[0\]: Event is needed, not Opened: encode it .* decision"):
        store.append([Opened("w1")])  # type: ignore[list-item,call-arg]


def test_a_stored_event_is_refused_with_what_to_do(store: EventStore) -> None:
    store.append(events("A"))
    with pytest.raises(InvalidInput, match=r"append its \.event"):
        store.append(list(store.read()))  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["", 5, "unknown://host/db", b"bytes"])
def test_an_address_that_means_no_store_is_refused(address: object) -> None:
    with pytest.raises((InvalidInput, TypeError)):
        fencepost.open(address)  # type: ignore[arg-type]


def test_each_memory_store_is_a_new_one(store: EventStore) -> None:
    store.append(events("A"))
    with fencepost.open("memory:") as other:
        assert other.head() == 0


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "1", True])
def test_a_timeout_that_is_no_time_is_refused_by_name(timeout_s: object) -> None:
    with fencepost.open("memory:") as store, pytest.raises(InvalidInput) as refused:
        store.subscribe(timeout_s=timeout_s)  # type: ignore[arg-type]
    assert refused.value.field == "timeout_s"


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, 10**400])
async def test_a_timeout_without_end_waits_until_an_event_comes(timeout_s: float, tmp_path: Path) -> None:
    async with fencepost.aio.open(tmp_path / "log") as store:
        with store.blocking.subscribe(timeout_s=timeout_s) as subscription:
            following = Running(lambda: next(subscription).type)
            await store.append(events("A"))
            assert (await anext(store.subscribe(timeout_s=timeout_s))).type == "A"
            assert following.result() == "A"


@pytest.mark.parametrize("limit", [0, -1, 2**63, 10**400, 1.0, True])
def test_a_limit_that_no_engine_can_count_to_is_refused_by_name(store: EventStore, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="an int from 1 to 9223372036854775807 is needed"):
        store.read(limit=limit)


class Batches(MemoryEngine):
    """A memory engine that notes the size of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        self.sizes.append(len(appends))
        return super().commit(appends)


class TestAppendEach:
    appends = (
        Append((Event("A"),)),
        Append((Event("B"),), (AppendCondition(Query.of(types={"A"})),)),
        Append((), checkpoint=("reader", 1)),
        Append((Event("C"),), checkpoint=("reader", 1)),
        Append((Event("D"),)),
    )
    verdicts = (
        Placed(1, 1),
        Conflict(AppendCondition(Query.of(types={"A"})), 1),
        Placed(1, 1),
        Behind("reader", 1, 1),
        Placed(2, 2),
    )

    def test_each_append_has_its_own_verdict_and_all_are_one_batch(self) -> None:
        with EventStore(engine := Batches()) as store:
            assert append_each(store, self.appends) == list(self.verdicts)
            assert [event.type for event in store.read()] == ["A", "D"]
            assert engine.sizes == [5]

    def test_more_events_than_a_batch_takes_are_several_batches_in_order(self) -> None:
        with EventStore(engine := Batches()) as store:
            placed = append_each(store, [Append((Event(str(number)),)) for number in range(BATCH_EVENTS + 1)])
            assert placed == [Placed(number, number) for number in range(1, BATCH_EVENTS + 2)]
            assert engine.sizes == [BATCH_EVENTS, 1]

    def test_other_threads_append_between_them(self) -> None:
        with EventStore(Batches()) as store:
            threads = [
                Running(lambda name=name: append_each(store, [Append((Event(name),)) for _ in range(50)]))  # type: ignore[misc]
                for name in "abcd"
            ]
            for thread in threads:
                placed = [verdict.first for verdict in thread.result() if isinstance(verdict, Placed)]
                assert len(placed) == 50
                assert placed == sorted(placed)
            assert store.head() == 200

    def test_malformed_appends_are_refused_before_any_is_stored(self) -> None:
        with EventStore(MemoryEngine()) as store:
            with pytest.raises(InvalidInput, match="events"):
                append_each(store, [Append((Event("A"),)), Append(())])
            assert store.head() == 0

    def test_a_closed_store_refuses(self, store: EventStore) -> None:
        store.close()
        with pytest.raises(StoreClosed):
            append_each(store, [Append((Event("A"),))])


def test_the_engine_beneath_a_store_says_what_it_can_do(store: EventStore) -> None:
    assert engine_of(store).capabilities == MemoryEngine.capabilities


def test_another_face_of_a_store_shares_its_group_commit_and_its_end(store: EventStore) -> None:
    face = EventStore(store)
    assert face.append(events("A")).first == 1
    assert store.head() == 1
    assert face._commits is store._commits
    store.close()
    with pytest.raises(StoreClosed):
        face.head()
