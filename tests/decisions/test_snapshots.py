"""Snapshots save reading, and a wrong snapshot is never used."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fencepost
from fencepost import Event, EventStore, Query, SequencedEvent, StoreError, aio
from fencepost.decisions import Cached, Projection, Retry, Tag, decision, encode, event, on, project, tag
from fencepost.decisions.projections import SNAPSHOT_TYPE
from fencepost.decisions.snapshots import fingerprint
from fencepost.engine import restore
from fencepost.model.limits import MAX_DATA_BYTES

from .test_deciding import Watched
from .wallets import (
    Balance,
    DepositMade,
    InsufficientFunds,
    Status,
    WalletClosed,
    WalletOpened,
    WithdrawalMade,
    withdraw,
)


@event
class Transferred:
    account: Annotated[UUID, tag()]
    amount: int


def history(events: int, wallet_id: str = "w1") -> list[Event]:
    deposits = [encode(DepositMade(wallet_id, f"d{number}", 1)) for number in range(events - 1)]
    return [encode(WalletOpened(wallet_id, "Ada", 100)), *deposits]


WEALTH = encode(WalletOpened("w1", "Ada", 1_000))


class Everything(Projection, snapshot_every=1):
    number: int = 0

    @on
    def _(self, event: SequencedEvent) -> None:
        self.number += 1


@decision
def count_everything(everything: Everything) -> DepositMade:
    return DepositMade("w1", "d", everything.number)


class Counted(Watched):
    """Counts the events that are handed out."""

    handed_out = 0
    before_second_read: Sequence[list[Event]] = ()

    def read(self, query: Query | None = None, **options: Any) -> Any:
        if len(self.queries) == 1:
            for meanwhile in self.before_second_read:
                EventStore.append(self, meanwhile)
        reading = super().read(query, **options)
        events = list(reading)
        self.handed_out += len(events)

        class Reading(list[Any]):
            head = reading.head

        return Reading(events)


@pytest.fixture
def counted() -> Iterator[Counted]:
    with Counted() as store:
        yield store


class TestASnapshot:
    def test_spares_reading_what_it_covers(self, counted: Counted) -> None:
        counted.append(history(20))
        cached = Cached(counted)
        assert project(cached, Balance("w1")).amount == 119
        counted.append([encode(WithdrawalMade("w1", "x", 50))])
        counted.handed_out = 0
        assert project(cached, Balance("w1")).amount == 69
        assert counted.handed_out == 2  # the anchor, and what came after it

    def test_is_taken_after_the_declared_number_of_events(self, counted: Counted) -> None:
        cached = Cached(counted)
        for number in range(7):
            counted.append([encode(DepositMade("w1", f"d{number}", 1))])
            counted.handed_out = 0
            project(cached, Balance("w1"))
            # Each third event makes a snapshot, from whose anchor on the next ones read.
            assert counted.handed_out == [1, 2, 3, 2, 3, 4, 2][number]

    def test_is_taken_of_projections_that_ask_for_it_only(self, counted: Counted) -> None:
        counted.append([*history(20), encode(WalletClosed("w1"))])
        cached = Cached(counted)
        for _ in range(2):
            counted.handed_out = 0
            assert not project(cached, Status("w1")).open
            assert counted.handed_out == 2

    def test_is_of_one_scope(self, counted: Counted) -> None:
        counted.append(history(5, "w1") + history(9, "w2"))
        cached = Cached(counted)
        for _ in range(2):
            assert project(cached, Balance("w1")).amount == 104
            assert project(cached, Balance("w2")).amount == 108

    @pytest.mark.parametrize("kept", [False, True])
    def test_is_of_one_value_among_those_with_the_same_tag(self, store: EventStore, kept: bool) -> None:
        """A UUID and its text find the same events, but do not equal the same fields of them."""

        class Received(Projection, snapshot_every=1):
            account: Annotated[UUID, tag()]
            amount: int = 0

            @on
            def _(self, event: Transferred) -> None:
                self.amount += event.amount if event.account == self.account else 0

        account = UUID(int=1)
        store.append([encode(Transferred(account, 10))])
        with fencepost.open("memory:") as keep:
            cached = Cached(store, keep_in=keep, limit=0 if kept else 10)
            assert project(cached, Received(str(account))).amount == 0  # type: ignore[arg-type]
            for _ in range(2):
                assert project(cached, Received(account)).amount == 10
            assert keep.head() == 2

    def test_serves_decisions_with_several_projections(self, counted: Counted) -> None:
        counted.append(history(5, "w1") + history(9, "w2"))
        cached = Cached(counted)

        @decision
        def compare(first: Balance, second: Balance, status: Status) -> DepositMade:
            assert status.open
            return DepositMade("w3", "d", second.amount - first.amount)

        for _ in range(3):
            assert compare(cached, Balance("w1"), Balance("w2"), Status("w1")).event.amount == 4

    def test_spares_as_much_beside_a_projection_that_has_none(self, counted: Counted) -> None:
        counted.append(history(20, "w1") + history(20, "w2"))
        cached = Cached(counted)

        @decision
        def compare(payer: Balance, receiver: Status) -> DepositMade:
            assert receiver.open
            return DepositMade("w3", "d", payer.amount)

        project(cached, Balance("w1"))
        counted.append([encode(WithdrawalMade("w1", "x", 50))])
        counted.handed_out = 0
        assert compare(cached, Balance("w1"), Status("w2")).event.amount == 69
        assert counted.handed_out == 3  # that the receiver was opened; the anchor, and what came after it

    def test_beside_a_projection_that_has_none_both_are_as_of_one_head(self, counted: Counted) -> None:
        counted.append(history(20, "w1") + history(1, "w2"))
        cached = Cached(counted)
        project(cached, Balance("w1"))
        seen = []

        @decision
        def compare(payer: Balance, receiver: Status) -> DepositMade:
            seen.append((payer.amount, receiver.open))
            return DepositMade("w3", "d", payer.amount)

        counted.queries.clear()
        counted.before_second_read = [[encode(WalletClosed("w2")), encode(WithdrawalMade("w1", "x", 50))]]
        compare(cached, Balance("w1"), Status("w2"))
        assert seen == [(119, True), (69, False)], "first what was before both, then what was after"

    def test_is_not_changed_by_the_decision_that_used_it(self, store: EventStore) -> None:
        class Names(Projection, snapshot_every=1):
            wallet_id: Tag
            names: list[str] = field(default_factory=list)

            @on
            def _(self, event: DepositMade) -> None:
                self.names.append(event.deposit_id)

        @decision
        def spoil(names: Names) -> None:
            names.names.append("spoiled")

        store.append([encode(DepositMade("w1", "d", 1))])
        cached = Cached(store)
        for _ in range(3):
            spoil(cached, Names("w1"))
        assert project(cached, Names("w1")).names == ["d"]

    def test_the_oldest_is_given_up_for_the_newest(self, counted: Counted) -> None:
        counted.append(history(5, "w1") + history(5, "w2"))
        cached = Cached(counted, limit=1)
        for wallet, read in (("w1", 5), ("w2", 5), ("w2", 1), ("w1", 5)):
            counted.handed_out = 0
            project(cached, Balance(wallet))
            assert counted.handed_out == read

    async def test_works_on_the_awaitable_store(self) -> None:
        async with aio.open("memory:") as store:
            await store.append(history(20))
            cached = Cached(store)
            for _ in range(2):
                assert (await project(cached, Balance("w1"))).amount == 119
            decided = await withdraw(cached, Balance("w1"), withdrawal_id="x", amount=119)
            assert decided.position == 21
            assert (await project(cached, Balance("w1"))).amount == 0


class TestAWrongSnapshot:
    @pytest.mark.parametrize("other", [history(20, "w1")[:4], [], history(4, "w2") + history(30, "w1")])
    def test_of_another_history_is_not_believed(self, other: list[Event]) -> None:
        """As after a backup was restored under a running process."""
        with Watched() as before, Watched() as after:
            before.append(history(20))
            if other:
                after.append(other)
            cached = Cached(before)
            project(cached, Balance("w1"))
            cached.store = after
            for _ in range(2):
                assert project(cached, Balance("w1")) == project(after, Balance("w1"))

    def test_whose_anchor_has_other_data_is_not_believed(self) -> None:
        with Watched() as before, Watched() as after:
            before.append(history(3))
            after.append([*history(2), encode(DepositMade("w1", "d1", 7))])
            cached = Cached(before)
            project(cached, Balance("w1"))
            cached.store = after
            assert project(cached, Balance("w1")).amount == 108

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from(["deposit", "withdraw", "read", "forge"]), st.integers(0, 2)), max_size=25)
    )
    def test_never_changes_what_is_read(self, steps: list[tuple[str, int]]) -> None:
        with Watched() as store, Watched() as elsewhere:
            elsewhere.append(history(9))
            cached = Cached(store, limit=2)
            for number, (step, wallet) in enumerate(steps):
                name = f"w{wallet}"
                if step == "deposit":
                    store.append([encode(DepositMade(name, f"d{number}", 5))])
                elif step == "withdraw":
                    store.append([encode(WithdrawalMade(name, f"x{number}", 3))])
                elif step == "forge":
                    # A snapshot from another store, slipped in under this one's name.
                    cached.store = elsewhere
                    project(cached, Balance(name))
                    cached.store = store
                assert project(cached, Balance(name)) == project(store, Balance(name))


def kept_snapshot(store: EventStore, keep: EventStore, wallet_id: str = "w1") -> SequencedEvent:
    """The snapshot of a wallet, as it is stored."""
    project(Cached(store, keep_in=keep), Balance(wallet_id))
    *_, newest = keep.read()
    return newest


def believed(store: EventStore, kept: Event) -> tuple[int, int]:
    """The balance by way of this snapshot, and how many snapshots were ignored."""
    with fencepost.open("memory:") as keep:
        keep.append([kept])
        cached = Cached(store, keep_in=keep)
        amount = project(cached, Balance("w1")).amount
        with pytest.raises(InsufficientFunds):
            withdraw(Cached(store, keep_in=keep), Balance("w1"), withdrawal_id="x", amount=800)
        return amount, cached.ignored


def copied(store: EventStore, *changed: SequencedEvent) -> EventStore:
    """A copy of the store's log in which these events stand in place of those at their positions."""
    events = {event.position: event for event in (*store.read(Query.all()), *changed)}
    copy = fencepost.open("memory:")
    restore(copy, [events[position] for position in sorted(events)])
    return copy


class TestADamagedSnapshot:
    """A stored snapshot may be damaged; no decision may depend on the damage."""

    def test_with_any_bit_flipped_changes_nothing(self, store: EventStore, caplog: pytest.LogCaptureFixture) -> None:
        store.append(history(13))
        with fencepost.open("memory:") as keep:
            kept = kept_snapshot(store, keep).event
        assert believed(store, kept) == (112, 0)
        ignored = 0
        for bit in range(8 * len(kept.data)):
            data = bytearray(kept.data)
            data[bit // 8] ^= 1 << bit % 8
            amount, one = believed(store, Event(kept.type, data=bytes(data), tags=kept.tags))
            assert amount == 112, f"bit {bit}"
            ignored += one
        # A few bits of what base64 pads with mean nothing; a change of any other bit is noticed.
        assert 8 * len(kept.data) - ignored < 16
        assert {record.name for record in caplog.records} == {"fencepost.decisions.snapshots"}
        assert "Balance ('wallet_id:w1',): event 1 in keep_in is damaged" in caplog.messages[0]

    @pytest.mark.parametrize(
        "data", [b"", b"\xff", b"null", b"{}", b"[" * 5_000, b'{"position": 13, "digest": "", "state": ""}']
    )
    def test_that_is_not_a_snapshot_changes_nothing(self, store: EventStore, data: bytes) -> None:
        store.append(history(13))
        with fencepost.open("memory:") as keep:
            kept = kept_snapshot(store, keep)
        assert believed(store, Event(kept.type, data=data, tags=kept.tags)) == (112, 1)

    def test_with_another_state_in_it_is_ignored(self, store: EventStore) -> None:
        store.append(history(13))
        with fencepost.open("memory:") as keep:
            kept = kept_snapshot(store, keep)
        content = msgspec.json.decode(kept.data)
        state = b64decode(content["snapshot"]["state"]).replace(b"K\x70", b"K\x71")
        assert state != b64decode(content["snapshot"]["state"])
        content["snapshot"]["state"] = b64encode(state).decode()
        assert believed(store, Event(kept.type, data=msgspec.json.encode(content), tags=kept.tags)) == (112, 1)

    def test_of_another_scope_under_this_key_is_ignored(self, store: EventStore) -> None:
        store.append(history(13) + history(900, "w2"))
        with fencepost.open("memory:") as keep:
            kept, other = kept_snapshot(store, keep), kept_snapshot(store, keep, "w2")
        assert believed(store, Event(kept.type, data=other.data, tags=kept.tags)) == (112, 1)

    def test_of_another_store_is_not_used_though_its_last_event_is_the_same(self, store: EventStore) -> None:
        store.append(history(13))
        (first,) = store.read(limit=1)
        richer = SequencedEvent(1, first.type, first.tags, WEALTH.data, first.recorded_at)
        with copied(store, richer) as other, fencepost.open("memory:") as keep:
            foreign, kept = kept_snapshot(other, keep), kept_snapshot(store, keep)
            assert project(other, Balance("w1")).amount == 1012
            assert believed(store, foreign.event) == (112, 0), "it is not even found"
            assert believed(store, Event(kept.type, data=foreign.data, tags=kept.tags)) == (112, 1)

    def test_of_another_store_is_no_hindrance_to_one_that_shares_the_place(self, store: EventStore) -> None:
        store.append(history(13))
        with fencepost.open("memory:") as other, fencepost.open("memory:") as keep:
            other.append(history(20))
            for _ in range(2):
                for each, amount in ((store, 112), (other, 119)):
                    cached = Cached(each, keep_in=keep)
                    assert (project(cached, Balance("w1")).amount, cached.ignored) == (amount, 0)
            assert keep.head() == 2

    def test_whose_position_is_above_the_head_is_ignored(self, store: EventStore) -> None:
        """As after a backup was restored; alone, and beside a projection that has no snapshot."""
        store.append(history(13))
        with copied(store) as longer, fencepost.open("memory:") as keep:
            longer.append(history(900))
            kept = kept_snapshot(longer, keep).event
            assert believed(store, kept) == (112, 1)
            seen = []

            @decision
            def look(balance: Balance, status: Status) -> None:
                seen.append((balance.amount, status.open))

            look(Cached(store, keep_in=keep), Balance("w1"), Status("w1"))
            assert seen == [(112, True)]

    def test_of_a_field_whose_class_has_changed_is_ignored(self, store: EventStore) -> None:
        """Under the same `version`, so that the old snapshot is found."""

        def made(**fields: Any) -> Any:
            Point: Any = msgspec.defstruct("Point", list(fields.items()))

            class Last(Projection, snapshot_every=1, version=1):
                wallet_id: Tag
                point: Point | None = None

                @on
                def _(self, event: DepositMade) -> None:
                    self.point = Point(*[event.amount] * len(fields))

            return Last

        store.append([encode(DepositMade("w1", "d", 7))])
        before, after = made(x=int), made(x=int, y=int)
        assert fingerprint(before) == fingerprint(after)
        with fencepost.open("memory:") as keep:
            project(Cached(store, keep_in=keep), before("w1"))
            cached = Cached(store, keep_in=keep)
            assert project(cached, after("w1")).point.y == 7
            assert cached.ignored == 1

    def test_is_replaced_by_the_next_decision(self, store: EventStore) -> None:
        store.append(history(13))
        with fencepost.open("memory:") as keep:
            kept = kept_snapshot(store, keep)
            keep.append([Event(kept.type, data=b"damaged", tags=kept.tags)])
            for ignored in (1, 0):
                cached = Cached(store, keep_in=keep)
                assert (project(cached, Balance("w1")).amount, cached.ignored) == (112, ignored)

    def test_that_cannot_be_read_at_all_does_not_fail_the_decision(self, store: EventStore) -> None:
        store.append(history(13))
        keep = fencepost.open("memory:")
        keep.close()
        cached = Cached(store, keep_in=keep)
        assert withdraw(cached, Balance("w1"), withdrawal_id="x", amount=112).position == 14
        assert cached.ignored == 1

    async def test_is_ignored_by_the_awaitable_store_as_well(self) -> None:
        async with aio.open("memory:") as store, aio.open("memory:") as keep:
            await store.append(history(13))
            await project(Cached(store, keep_in=keep), Balance("w1"))
            (kept,) = [event async for event in keep.read()]
            await keep.append([Event(kept.type, data=b"damaged", tags=kept.tags)])
            cached = Cached(store, keep_in=keep)
            assert ((await project(cached, Balance("w1"))).amount, cached.ignored) == (112, 1)


class TestKeptInAStore:
    def test_survives_the_process(self, tmp_path: Path, counted: Counted) -> None:
        counted.append(history(20))
        with fencepost.open(tmp_path / "snapshots.db") as keep:
            project(Cached(counted, keep_in=keep), Balance("w1"))
        with fencepost.open(tmp_path / "snapshots.db") as keep:
            counted.handed_out = 0
            assert project(Cached(counted, keep_in=keep), Balance("w1")).amount == 119
            assert counted.handed_out == 2  # the first event, which identifies the log, and the anchor

    def test_may_be_the_same_store(self, store: EventStore) -> None:
        store.append(history(20))
        cached = Cached(store, keep_in=store)
        project(cached, Balance("w1"))
        assert [event.type for event in store.read(after=20)] == [SNAPSHOT_TYPE]
        assert project(Cached(store, keep_in=store), Balance("w1")).amount == 119
        assert store.head() == 21

    def test_in_the_same_store_does_not_conflict_with_its_own_decision(self, store: EventStore) -> None:
        cached = Cached(store, keep_in=store)
        note = count_everything.with_retry(Retry(attempts=1))
        assert [note(cached, Everything()).event.amount for _ in range(3)] == [0, 1, 2]
        assert [event.type for event in store.read()] == ["DepositMade", *["DepositMade", SNAPSHOT_TYPE] * 2]

    def test_in_the_same_store_is_no_event_to_a_projection_of_every_type(self, store: EventStore) -> None:
        store.append(history(20))
        cached = Cached(store, keep_in=store)
        for _ in range(3):
            assert project(cached, Everything()).number == 20
        assert store.head() == 21, "there was nothing new to take a snapshot of"
        assert project(store, Everything()).number == 20

    def test_is_kept_when_the_rule_refuses(self, store: EventStore) -> None:
        store.append(history(20))
        with fencepost.open("memory:") as keep:
            with pytest.raises(InsufficientFunds):
                withdraw(Cached(store, keep_in=keep), Balance("w1"), withdrawal_id="x", amount=1_000)
            assert keep.head() == 1

    def test_is_kept_once_however_often_the_decision_is_retried(self) -> None:
        with Watched() as store, fencepost.open("memory:") as keep:
            store.append(history(20))
            store.before_append = iter([[encode(DepositMade("w1", f"e{n}", 1)) for n in range(3)]] * 3)
            withdraw(Cached(store, keep_in=keep), Balance("w1"), withdrawal_id="x", amount=1)
            assert (store.head(), keep.head()) == (30, 1)
            assert project(Cached(store, keep_in=keep), Balance("w1")).amount == 127

    def test_that_is_too_large_does_not_fail_the_decision(self, store: EventStore) -> None:
        class Names(Projection, snapshot_every=1):
            wallet_id: Tag
            names: str = ""

            @on
            def _(self, event: DepositMade) -> None:
                self.names += "a" * MAX_DATA_BYTES

        store.append([encode(DepositMade("w1", "d", 1))])
        with fencepost.open("memory:") as keep:
            assert len(project(Cached(store, keep_in=keep), Names("w1")).names) == MAX_DATA_BYTES
            assert keep.head() == 0

    def test_a_wrong_one_is_replaced(self, counted: Counted, store: EventStore) -> None:
        counted.append(history(2))
        with copied(counted) as longer:
            longer.append(history(20))
            project(Cached(longer, keep_in=store), Balance("w1"))
        for expected in (1 + 2, 1 + 1):  # the first event each time; then all of them, then the anchor
            counted.handed_out = 0
            assert project(Cached(counted, keep_in=store), Balance("w1")).amount == 101
            assert counted.handed_out == expected

    def test_a_store_that_fails_does_not_fail_the_decision(self, store: EventStore) -> None:
        class Full(Watched):
            def append(self, *args: Any, **options: Any) -> Any:
                raise StoreError("the disk is full")

        store.append(history(20))
        with Full() as keep:
            assert withdraw(Cached(store, keep_in=keep), Balance("w1"), withdrawal_id="x", amount=1).position == 21

    async def test_works_on_the_awaitable_store(self) -> None:
        async with aio.open("memory:") as store, aio.open("memory:") as keep:
            await store.append(history(20))
            for _ in range(2):
                assert (await project(Cached(store, keep_in=keep), Balance("w1"))).amount == 119
            assert await keep.head() == 1
        with fencepost.open("memory:") as blocking:
            async with aio.open("memory:") as store:
                await store.append(history(20))
                assert (await project(Cached(store, keep_in=blocking), Balance("w1"))).amount == 119
            assert blocking.head() == 1
