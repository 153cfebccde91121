"""How staged rows get into the store: once, whole, in order; also when the driver dies in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import stored

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, InvalidInput, Query, StoreError
from fencepost.core.address import Address
from fencepost.spark.basics.options import parse
from fencepost.spark.sink import delivery as sink
from fencepost.spark.sink import staging
from fencepost.spark.sink.delivery import Delivery, delivery_of
from fencepost.spark.sink.rows import STAGED
from fencepost.spark.sink.staging import StagedRows


class Killed(BaseException):
    """The driver is gone: nothing that it would do about an error happens."""


@pytest.fixture
def place(tmp_path: Path, empty: str) -> dict[str, str]:
    return {"store": empty, "staging": str(tmp_path / "staging"), "rejected": str(tmp_path / "rejected")}


def delivery(place: dict[str, str], write_id: str = "w", **options: str) -> Delivery:
    return delivery_of(parse({**place, **options}), write_id, named=True)


def rows(*types: str, **columns: Any) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"type": type, **columns} for type in types], schema=STAGED)


def types_in(place: dict[str, str]) -> list[str]:
    return [event.type for event in stored(place["store"])]


def rejected_in(place: dict[str, str]) -> list[dict[str, Any]]:
    return pq.read_table(place["rejected"]).to_pylist()  # type: ignore[no-any-return]


def files_in(place: dict[str, str]) -> list[str]:
    return [name for _, _, names in os.walk(place["staging"]) for name in names]


def test_a_batch_is_stored_in_the_order_of_its_partitions(place: dict[str, str]) -> None:
    write = delivery(place)
    write.deliver([write.stage(rows("A", "B")), write.stage(rows("C"))], 0)
    assert types_in(place) == ["A", "B", "C"]


def test_a_replayed_batch_is_left_alone_whatever_it_holds_now(place: dict[str, str]) -> None:
    for types in (("A", "B"), ("B", "A"), ("X",)):
        write = delivery(place)
        write.deliver([write.stage(rows(*types))], 0)
    write.deliver([write.stage(rows("C"))], 1)
    write.deliver([write.stage(rows("C"))], 1)
    assert types_in(place) == ["A", "B", "C"]


def test_two_writes_do_not_know_each_other(place: dict[str, str]) -> None:
    for write in (delivery(place, "one"), delivery(place, "two")):
        write.deliver([write.stage(rows("A"))], 0)
    assert types_in(place) == ["A", "A"]


def test_a_write_to_one_store_never_stores_what_a_write_to_another_has_settled(
    place: dict[str, str], tmp_path: Path
) -> None:
    other = {**place, "store": str(tmp_path / "other.db")}
    fencepost.open(other["store"]).close()
    failed, write = delivery(other), delivery(place)
    failed.staging.settle([failed.stage(batch_of(conditional("Theirs", None)))], 0)
    write.deliver([write.stage(batch_of(conditional("Ours", once("A"))))], 0)
    assert types_in(place) == ["Ours"]


def test_a_write_is_known_again_when_its_address_is_written_in_another_way(place: dict[str, str]) -> None:
    there = delivery(place).staging.folder
    assert delivery({**place, "store": f"sqlite:{place['store']}"}).staging.folder == there
    addresses = [f"postgresql://ada:{word}@db/wallet?sslpassword={word}&schema=a" for word in ("old", "new")]
    assert len({staging.Staging("/s", Address.parse(address), "w").folder for address in addresses}) == 1
    assert staging.known_as(Address.parse(addresses[0])) == "postgresql://ada@db/wallet?schema=a"


def test_a_stream_that_begins_anew_under_its_old_name_is_refused(place: dict[str, str]) -> None:
    write = delivery(place)
    for batch in range(3):
        write.deliver([write.stage(rows("A"))], batch)
    with pytest.raises(StoreError, match="new writeId"):
        write.deliver([write.stage(rows("B"))], 0)
    assert types_in(place) == ["A", "A", "A"]


def test_a_name_that_another_checkpoint_has_used_is_refused_and_no_batch_is_dropped(place: dict[str, str]) -> None:
    """The other stream has stored exactly the batch that this one comes with."""
    first, second = (delivery_of(parse(place), "w", named=True, origin=origin) for origin in ("one", "two"))
    for _ in range(2):  # Spark repeats a batch after a crash
        first.deliver([first.stage(rows("A"))], 0)
    with pytest.raises(StoreError, match=r"another checkpoint, .* give a stream with a new checkpoint a new writeId"):
        second.deliver([second.stage(rows("B"))], 0)
    first.deliver([first.stage(rows("C"))], 1)
    assert types_in(place) == ["A", "C"]


def test_a_checkpoint_is_named_by_its_id_or_by_its_place(place: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "of the stream"}')
    options = [parse({**place, "checkpointLocation": where}) for where in (f"file:{tmp_path}", "dbfs:/x", "dbfs:/x/")]
    first, second, third = map(sink.checkpoint_id, options)
    assert first == "of the stream"
    assert second == third != sink.checkpoint_id(parse({**place, "checkpointLocation": "dbfs:/y"}))


@pytest.fixture
def small_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "MAX_EVENTS", 5)
    monkeypatch.setattr(sink, "CHUNK_EVENTS", 3)


TEN = tuple("ABCDEFGHIJ")


@pytest.mark.usefixtures("small_appends")
def test_a_batch_too_large_for_one_append_is_stored_in_chunks(place: dict[str, str]) -> None:
    write = delivery(place)
    write.deliver([write.stage(rows(*TEN[:4])), write.stage(rows(*TEN[4:]))], 0)
    write.deliver([write.stage(rows(*TEN))], 0)
    write.deliver([write.stage(rows("K"))], 1)
    assert types_in(place) == [*TEN, "K"]


@pytest.mark.usefixtures("small_appends")
@pytest.mark.parametrize("survived", range(5))
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_driver_that_dies_between_two_chunks_goes_on_with_the_same_rows(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch, survived: int, acknowledged: bool
) -> None:
    """The replay computes the rows in another order, as a shuffle may: the first order counts."""
    append = EventStore.append
    calls = 0

    def dying(self: EventStore, *args: Any, **kwargs: Any) -> fencepost.Placed:
        nonlocal calls
        calls += 1
        if calls <= survived:
            return append(self, *args, **kwargs)
        if not acknowledged:
            append(self, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(EventStore, "append", dying)
        first = delivery(place)
        try:
            first.deliver([first.stage(rows(*TEN))], 0)
        except Killed:
            assert len(types_in(place)) < 10 or not acknowledged
    again = delivery(place)
    again.deliver([again.stage(rows(*reversed(TEN)))], 0)
    assert types_in(place) == list(TEN)


def conditional(type: str, condition: AppendCondition | None, **columns: Any) -> dict[str, Any]:
    return {"type": type, "tags": [type], "condition": condition and condition.to_json(), **columns}


def once(type: str) -> AppendCondition:
    return AppendCondition(Query.of(types={type}))


def batch_of(*given: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(list(given), schema=STAGED)


def test_each_row_is_judged_by_its_own_condition_and_against_the_rows_before_it(place: dict[str, str]) -> None:
    write = delivery(place)
    given = [
        conditional("A", once("A")),
        conditional("A", once("A")),
        conditional("B", once("A")),
        conditional("C", None),
    ]
    write.deliver([write.stage(batch_of(*given))], 0)
    assert types_in(place) == ["A", "C"]
    assert [(row["type"], row["conflict_position"]) for row in rejected_in(place)] == [("A", 1), ("B", 1)]
    assert AppendCondition.from_json(rejected_in(place)[0]["condition"]) == once("A")


@pytest.mark.parametrize("after_calls", range(4))
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_driver_that_dies_among_conditions_comes_to_the_same_verdicts(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch, after_calls: int, acknowledged: bool
) -> None:
    from fencepost.engines.sqlite import SqliteEngine

    monkeypatch.setattr(sink, "ROW_APPENDS", 2)
    given = [conditional(type, once(type), data=str(number).encode()) for number, type in enumerate("ABABCA")]
    commit = SqliteEngine.commit
    calls = 0

    def dying(self: SqliteEngine, appends: Any) -> Any:
        nonlocal calls
        calls += 1
        verdicts = commit(self, appends) if calls <= after_calls or not acknowledged else []
        if calls > after_calls:
            raise Killed
        return verdicts

    with monkeypatch.context() as patched:
        patched.setattr(SqliteEngine, "commit", dying)
        first = delivery(place)
        with pytest.raises(Killed):
            first.deliver([first.stage(batch_of(*given))], 0)
    again = delivery(place)
    again.deliver([again.stage(batch_of(*reversed(given)))], 0)
    assert [(event.type, event.data) for event in stored(place["store"])] == [("A", b"0"), ("B", b"1"), ("C", b"4")]
    assert sorted((row["data"], row["conflict_position"]) for row in rejected_in(place)) == [
        (b"2", 1),
        (b"3", 2),
        (b"5", 1),
    ]


def test_a_condition_for_the_batch_stores_all_of_it_or_nothing(place: dict[str, str]) -> None:
    with fencepost.open(place["store"]) as store:
        store.append([Event("A")])
    del place["rejected"]
    write = delivery(place, condition=once("A").to_json())
    with pytest.raises(ConditionFailed, match="position 1"):
        write.deliver([write.stage(rows("B", "C"))], 0)
    assert types_in(place) == ["A"]
    allowed = delivery(place, condition=AppendCondition(Query.of(types={"A"}), after=1).to_json())
    allowed.deliver([allowed.stage(rows("B", "C"))], 0)
    assert types_in(place) == ["A", "B", "C"]


def test_a_rejected_batch_is_kept_where_that_is_wanted(place: dict[str, str]) -> None:
    with fencepost.open(place["store"]) as store:
        store.append([Event("A")])
    write = delivery(place, condition=once("A").to_json())
    write.deliver([write.stage(rows("B", "C", tags=["x"]))], 0)
    assert [(row["type"], row["tags"], row["conflict_position"]) for row in rejected_in(place)] == [
        ("B", ["x"], 1),
        ("C", ["x"], 1),
    ]
    assert types_in(place) == ["A"]


def test_a_replayed_batch_is_not_rejected_because_of_itself(place: dict[str, str]) -> None:
    for _ in range(2):
        write = delivery(place, condition=once("A").to_json())
        write.deliver([write.stage(rows("A", "A"))], 0)
    assert types_in(place) == ["A", "A"]
    assert not Path(place["rejected"]).exists()


@pytest.mark.usefixtures("small_appends")
def test_a_condition_for_the_batch_needs_a_batch_that_fits(place: dict[str, str]) -> None:
    write = delivery(place, condition=once("A").to_json())
    with pytest.raises(InvalidInput, match="10 rows are too many"):
        write.deliver([write.stage(rows(*TEN))], 0)
    assert types_in(place) == []


def test_ids_of_rows_are_ids_of_events_and_store_once(place: dict[str, str]) -> None:
    id = "6f6f6f6f-0000-4000-8000-000000000001"
    for write in (delivery(place, "one"), delivery(place, "two")):
        write.deliver([write.stage(batch_of({"type": "A", "id": id}))], 0)
    (event,) = stored(place["store"])
    assert str(event.id) == id


@pytest.mark.usefixtures("small_appends")
@pytest.mark.parametrize("condition", [None, once("Never")], ids=["in chunks", "row by row"])
def test_an_id_that_is_there_twice_is_refused_before_anything_is_stored(
    place: dict[str, str], condition: AppendCondition | None
) -> None:
    """Also when it ends in a zero and is written in two ways; corrected, the same write is stored."""
    ids = [f"6f6f6f6f-0000-4000-8000-0000000000{number:02x}" for number in range(0, 100, 10)]

    def deliver(ids: list[str]) -> None:
        write = delivery(place)
        given = [conditional(type, condition, id=id) for type, id in zip(TEN, ids, strict=True)]
        write.deliver([write.stage(batch_of(*given[:6])), write.stage(batch_of(*given[6:]))], 0)

    with pytest.raises(InvalidInput, match=f"column 'id': {ids[0]} occurs twice"):
        deliver([*ids[:9], ids[0].replace("-", "").upper()])
    assert types_in(place) == []
    deliver(ids)
    assert types_in(place) == list(TEN)


def test_many_rows_are_staged_in_a_file_and_few_in_the_message(place: dict[str, str]) -> None:
    write = delivery(place)
    few, many = write.stage(rows("A")), write.stage(rows(*["B"] * 10, data=b"x" * 100_000))
    assert few.path is None
    assert many.path is not None
    write.deliver([few, many], 0)
    assert types_in(place) == ["A"] + ["B"] * 10


def test_nothing_stays_in_the_staging_folder(place: dict[str, str]) -> None:
    write = delivery(place)
    abandoned = write.stage(rows(*["B"] * 10, data=b"x" * 100_000))
    kept = write.stage(rows(*["A"] * 10, data=b"x" * 100_000))
    assert len(files_in(place)) == 2
    write.deliver([kept], 0)
    assert files_in(place) == []
    assert abandoned.path is not None
    write.stage(rows(*["B"] * 10, data=b"x" * 100_000))
    write.staging.discard()
    assert files_in(place) == []


def test_what_killed_writes_have_left_is_swept_after_a_day(place: dict[str, str]) -> None:
    killed, fresh = delivery(place, "killed"), delivery(place, "fresh")
    for write in (killed, fresh):
        write.stage(rows(*["B"] * 10, data=b"x" * 100_000))
    os.utime(killed.staging.folder / "tasks", (0, 0))
    delivery(place, "other").staging.finish(0)
    assert not killed.staging.folder.exists()
    assert len(files_in(place)) == 1


def test_a_settled_batch_is_never_swept(place: dict[str, str]) -> None:
    write = delivery(place, "killed")
    write.staging.settle([write.stage(rows("A"))], 0)
    (write.staging.folder / "tasks").mkdir()
    os.utime(write.staging.folder / "tasks", (0, 0))
    staging._sweep(Path(place["staging"]))
    assert write.staging.settled(0)


def test_a_staged_file_that_the_driver_cannot_see_is_explained(place: dict[str, str]) -> None:
    write = delivery(place)
    elsewhere = StagedRows(1, 1, False, path="/on/another/machine/000000.arrow")
    with pytest.raises(fencepost.StoreUnavailable, match="'staging'"):
        write.deliver([elsewhere], 0)
    assert types_in(place) == []
