"""Read models: rows that follow a projection, rebuilt beside the old ones while readers look all the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from fencepost import EventStore, Query, SequencedEvent
from fencepost.consumers import (
    CommandRefused,
    Failures,
    ReadModel,
    TargetRefused,
    WaitTimedOut,
    reset,
    start,
    verify,
)
from fencepost.decisions import DefinitionError, Projection, Tag, encode, event, on, project, tag
from fencepost.errors import InvalidInput

from .places import Added, Place, add, eventually


@event
class Moved:
    source: Annotated[str, tag("wallet_id")]
    target: Annotated[str, tag("wallet_id")]
    amount: int


class Balance(Projection):
    wallet_id: Tag
    amount: int = 0
    largest: int | None = None
    counterparts: list[str] = []  # noqa: RUF012  made anew for each instance

    @on
    def _(self, event: Moved) -> None:
        sign = (event.target == self.wallet_id) - (event.source == self.wallet_id)
        self.amount += sign * event.amount
        self.largest = max(self.largest or 0, event.amount)
        other = event.source if sign > 0 else event.target
        if other not in self.counterparts:
            self.counterparts.append(other)


class Total(Projection):
    key: Tag
    total: int = 0
    is_large: bool = False

    @on
    def _(self, event: Added) -> None:
        self.total += event.amount
        self.is_large = self.total > 5


@pytest.fixture
def store(place: Place) -> Iterator[EventStore]:
    with place.open() as store:
        yield store


def move(store: EventStore, count: int, wallets: int = 5) -> int:
    events = [encode(Moved(f"w{n % wallets}", f"w{(n * 7 + 1) % wallets}", n % 13 + 1)) for n in range(count)]
    return store.append(events).last


def balances(place: Place, version: int = 1, **options: Any) -> ReadModel:
    """The read model of a projection of the same name, but with another behaviour for each version."""
    if version == 1:
        return ReadModel(Balance, by="wallet_id", into=place.into, table="balances", lease_s=1, **options)

    class Changed(Balance, version=version):
        moves: int = 0

        @on
        def _(self, event: Moved) -> None:
            sign = (event.target == self.wallet_id) - (event.source == self.wallet_id)
            self.amount += sign * event.amount
            self.moves += 1

    return ReadModel(Changed, into=place.into, table="balances", lease_s=1, **options)


def test_a_row_is_what_the_projection_is(place: Place, store: EventStore) -> None:
    model = balances(place)
    move(store, 100)
    with start(store, model):
        last = move(store, 100)
        model.wait_for(store, last)
        rows = place.execute("SELECT wallet_id, amount, largest, counterparts, position FROM balances")
    assert len(rows) == 5
    for wallet_id, amount, largest, counterparts, position in rows:
        expected = project(store, Balance(wallet_id))
        assert (amount, largest, position) == (expected.amount, expected.largest, expected.position)
        assert counterparts == str(expected.counterparts).replace("'", '"').replace(", ", ",")


def test_rows_are_continued_by_the_next_process(place: Place, store: EventStore) -> None:
    for _ in range(3):
        with start(store, balances(place)):
            model = balances(place)
            model.wait_for(store, move(store, 50))
    assert verify(balances(place), store) is None


def test_truth_values_come_back_as_such(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals", lease_s=1)
    for _ in range(2):
        with start(store, model):
            model.wait_for(store, add(store, 3))
    assert verify(model, store) is None
    assert [bool(large) for (large,) in place.execute("SELECT is_large FROM totals")] == [True]


def test_a_request_reads_its_own_write(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals", lease_s=1)
    with start(store, model):
        for count in range(1, 20):
            model.wait_for(store, add(store))
            assert place.execute("SELECT total FROM totals") == [(count,)]


def test_waiting_ends_at_once_if_the_events_do_not_concern_the_model(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals", lease_s=1)
    with start(store, model):
        model.wait_for(store, add(store))
        model.wait_for(store, move(store, 10), timeout_s=0)


def test_waiting_for_a_model_that_does_not_run_times_out(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals")
    last = add(store)
    with pytest.raises(WaitTimedOut, match=f"did not reach position {last}"):
        model.wait_for(store, last, timeout_s=0.05)


def test_waiting_for_a_position_that_the_store_does_not_have_is_not_over_early(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals", lease_s=1)
    with start(store, model):
        last = add(store)
        model.wait_for(store, last)
        with pytest.raises(WaitTimedOut):
            model.wait_for(store, store.head() + 100, timeout_s=0.05)


def test_a_model_that_was_never_built_is_not_verified(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals")
    add(store)
    with pytest.raises(CommandRefused, match="totals: this version was never built"):
        verify(model, store)


def test_rows_of_a_batch_that_failed_are_not_applied_twice(place: Place, store: EventStore) -> None:
    failed: list[int] = []

    class Fragile(Total, version=9):
        @on
        def _(self, event: Added, stored: SequencedEvent) -> None:
            self.total += event.amount
            if stored.position % 5 == 0 and stored.position not in failed:
                failed.append(stored.position)
                raise ValueError("not yet")

    model = ReadModel(Fragile, into=place.into, table="totals", lease_s=1, failures=Failures(base_s=0.01))
    with start(store, model):
        model.wait_for(store, add(store, 20))
    assert len(failed) == 4
    assert verify(model, store) is None


class Reader:
    """Looks at the published table all the time: amounts must sum to 0, and it must never go back."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._thread = threading.Thread(target=self._look)
        self._stopped = False
        self.looks = 0
        self.problems: list[str] = []

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped = True
        self._thread.join()

    def _look(self) -> None:
        latest = 0
        connection = self._place.connect()
        try:
            while not self._stopped:
                total, position = connection.execute("SELECT sum(amount), max(position) FROM balances").fetchone()
                if total != 0:
                    self.problems.append(f"a mixture: the amounts sum to {total}")
                if position is None or position < latest:
                    self.problems.append(f"back from {latest} to {position}")
                latest = position or 0
                self.looks += 1
        except Exception as error:
            self.problems.append(repr(error))
        finally:
            connection.close()


def test_readers_see_no_gap_while_a_changed_model_is_built_and_published(place: Place, store: EventStore) -> None:
    old, new = balances(place), balances(place, 2, batch=100)
    move(store, 3_000)
    with start(store, old):
        old.wait_for(store, store.head(), timeout_s=60)
        with Reader(place) as reader:
            eventually(lambda: reader.looks > 5)
            with start(store, new):
                eventually(lambda: move(store, 10) and "moves" in columns(place), "the new version")
                looks = reader.looks
                eventually(lambda: move(store, 10) and reader.looks > looks + 5)
                new.wait_for(store, move(store, 10), timeout_s=60)
        assert reader.problems == []
    assert verify(new, store) is None
    assert verify(old, store) is None


def columns(place: Place) -> list[str]:
    connection = place.connect()
    try:
        return [each[0] for each in connection.execute("SELECT * FROM balances").description]
    finally:
        connection.close()


def test_a_changed_model_is_not_published_before_it_has_caught_up(place: Place, store: EventStore) -> None:
    old = balances(place)
    move(store, 200)
    with start(store, old):
        old.wait_for(store, store.head())
    held = threading.Event()

    class Slow(Balance, version=3):
        @on
        def _(self, event: Moved) -> None:
            sign = (event.target == self.wallet_id) - (event.source == self.wallet_id)
            self.amount += sign * event.amount
            if self.position > 100:
                held.wait(30)

    slow = ReadModel(Slow, into=place.into, table="balances", lease_s=5, batch=10)
    with start(store, slow) as runner:
        eventually(lambda: runner.partition_runners[0].position >= 50)
        assert old.position() >= 200
        published = place.execute("SELECT max(position) FROM balances")
        assert published == [(200,)]
        held.set()
        published_state = f"SELECT state FROM fencepost_read_model WHERE version = '{slow.version}'"
        eventually(lambda: place.execute(published_state) == [("published",)])


def test_the_previous_version_can_be_published_again(place: Place, store: EventStore) -> None:
    old, new = balances(place), balances(place, 2)
    move(store, 50)
    with start(store, old):
        old.wait_for(store, store.head())
        with start(store, new):
            eventually(lambda: "moves" in columns(place))
            new.rollback()
            assert "moves" not in columns(place)
            last = move(store, 50)
            old.wait_for(store, last)
            eventually(lambda: new_position(place, new) >= last)
            assert "moves" not in columns(place)  # a withdrawn version does not publish itself again
    with pytest.raises(CommandRefused, match="no previous version"):
        new.rollback()


def new_position(place: Place, model: ReadModel) -> int:
    return place.checkpoint(model.name)


def test_a_reset_builds_the_table_again(place: Place, store: EventStore) -> None:
    model = balances(place)
    with start(store, model):
        model.wait_for(store, move(store, 50))
        place.execute(f"UPDATE balances_{model.version} SET amount = 99 WHERE wallet_id = 'w1'")
        assert verify(model, store) is not None
        reset(store, model.name)
        eventually(lambda: verify(model, store) is None and new_position(place, model) >= 50)


def test_a_drift_is_named(place: Place, store: EventStore) -> None:
    model = ReadModel(Total, into=place.into, table="totals", lease_s=1)
    with start(store, model):
        add(store, 2, key="a")
        model.wait_for(store, add(store, 3, key="b"))
    place.execute(f"UPDATE totals_{model.version} SET total = 7 WHERE key = 'b'")
    drift = verify(model, store)
    assert drift is not None
    assert drift.key == ("b",)
    assert drift.stored is not None
    assert drift.expected is not None
    assert (drift.stored["total"], drift.expected["total"]) == (7, 3)


class TestDeclarations:
    def test_the_query_is_that_of_the_projection(self) -> None:
        model = ReadModel(Total, into="views.db", table="totals")
        assert model.query == Query.of(types={"Added"})

    def test_another_behaviour_is_another_version(self, tmp_path: Any) -> None:
        place = Place(str(tmp_path / "a"), str(tmp_path / "b"), "sqlite")
        assert balances(place).version == balances(place).version
        assert balances(place).version != balances(place, 2).version

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: ReadModel(Total, into=None, table="t"), InvalidInput, "needs an SQL database"),
            (lambda: ReadModel(Total, into="v.db", table="t", by="wallet"), DefinitionError, "is scoped by"),
            (lambda: ReadModel(Total, into="v.db", table="50%"), DefinitionError, "cannot be the name"),
        ],
    )
    def test_a_mistake_is_refused(self, make: Callable[[], Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            make().session()

    def test_a_reset_to_the_middle_is_refused(self, place: Place, store: EventStore) -> None:
        model = balances(place)
        with start(store, model) as runner:
            model.wait_for(store, move(store, 50))
            reset(store, model.name, position=20)
            refusal = eventually(lambda: runner.partition_runners[0].refusal)
        assert isinstance(refusal, TargetRefused)
        assert "position 0 only" in str(refusal)
