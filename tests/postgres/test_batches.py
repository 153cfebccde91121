"""The server judges a batch as the reference engine does: one append after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.postgres.stepping import hand

from fencepost import (
    AppendCondition,
    Delete,
    Event,
    EventStore,
    IdsOverlap,
    Placed,
    Put,
    Query,
    QueryItem,
    StoreUnavailable,
)
from fencepost.core.address import open_engine
from fencepost.core.verdicts import Append, Conflict, Verdict
from fencepost.engines.memory import MemoryEngine
from fencepost.engines.postgres import committer
from fencepost.engines.postgres.committer import CALL_EVENTS
from fencepost.testing.contract.base import contents, no_new, tagged

BATCHES = 25
TAGS = [f"tag:{number}" for number in range(9)]
TYPES = ["A", "B", "C"]


def random_query(chance: random.Random) -> Query:
    items = [
        QueryItem(
            types=chance.sample(TYPES, chance.choice([0, 1, 2])), tags=chance.sample(TAGS, chance.choice([0, 1, 1, 2]))
        )
        for _ in range(chance.choice([1, 1, 2]))
    ]
    return Query(items)


def random_append(chance: random.Random, head: int) -> Append:
    """Few tags, ids and names, so that appends of one batch often conflict with each other."""
    events = []
    ids = [UUID(int=number) for number in chance.sample(range(60), 4)] if chance.random() < 0.3 else [None] * 4
    for number in range(chance.choice([1, 1, 1, 2, 4])):
        tags = chance.sample(TAGS, chance.choice([0, 1, 2, 3, 3, 6]))
        metadata = {"n": "1"} if chance.random() < 0.1 else None
        events.append(Event(chance.choice(TYPES), data=b"\0x", tags=tags, id=ids[number], metadata=metadata))
    conditions = [
        AppendCondition(random_query(chance), after=max(0, head - chance.choice([0, 0, 1, 3, 50])))
        for _ in range(chance.choice([0, 1, 1, 2]))
    ]
    unless = random_query(chance) if chance.random() < 0.1 else None
    checkpoint = (chance.choice("xy"), chance.randrange(1, 200)) if chance.random() < 0.1 else None
    if checkpoint is not None and chance.random() < 0.5:
        events = []
    changes = random_changes(chance) if chance.random() < 0.2 else ()
    if changes and chance.random() < 0.5:
        events = []
    return Append(tuple(events), tuple(conditions), unless, checkpoint, changes)


def random_changes(chance: random.Random) -> tuple[Put | Delete, ...]:
    """Few names and low revisions, so that many changes succeed and others do not."""
    names = chance.sample("rst", chance.choice([1, 1, 2]))
    return tuple(
        Delete(name, chance.randrange(1, 4)) if chance.random() < 0.3 else Put(name, b"\0v", chance.randrange(4))
        for name in names
    )


def without_event(verdict: Verdict) -> Verdict:
    return replace(verdict, conflict=None) if isinstance(verdict, Conflict) else verdict


@pytest.mark.parametrize("seed", range(12))
def test_random_batches_get_the_verdicts_of_the_reference(url: str, seed: int) -> None:
    compare_with_the_reference(url, seed)


@pytest.mark.parametrize("seed", range(3))
def test_random_batches_in_parts_get_them_as_well(url: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "CALL_EVENTS", 3)
    monkeypatch.setattr(committer, "CALL_BYTES", 10)
    compare_with_the_reference(url, seed)


def compare_with_the_reference(url: str, seed: int) -> None:
    chance = random.Random(seed)
    ours, reference = open_engine(url), MemoryEngine()
    seen: set[str] = set()
    for _ in range(BATCHES):
        batch = [random_append(chance, reference.head()) for _ in range(chance.choice([1, 2, 3, 8, 20]))]
        expected = reference.commit(batch)
        judged = ours.commit(batch)
        assert [without_event(verdict) for verdict in judged] == expected
        for verdict in judged:
            seen.add(type(verdict).__name__)
            if isinstance(verdict, Conflict):
                assert verdict.conflict is not None
                assert verdict.conflict.position == verdict.position
    assert {"Placed", "Conflict"} <= seen
    with EventStore(ours) as one, EventStore(reference) as other:
        assert contents(one.read()) == contents(other.read())
        for _ in range(20):
            query = random_query(chance)
            assert contents(one.read(query)) == contents(other.read(query))


def test_what_a_batch_has_stored_halfway_is_seen_by_all_that_come_later(
    store: EventStore, database_url: str, schema: str
) -> None:
    """The second append has the first one stored; the third, which reads what the first wrote, reads it from there."""
    with hand(database_url, schema) as writer:
        first, second, third = writer.append(
            Append((Event("A", tags={"seat:1"}),)),
            Append((Event("B", tags={"seat:2"}),), (no_new(tagged("seat:1")),)),
            Append((Event("C", tags={"seat:3"}),), (no_new(tagged("seat:1")),)),
        )
    assert first == Placed(1, 1)
    assert isinstance(second, Conflict)
    assert isinstance(third, Conflict)
    assert store.head() == 1


def test_a_batch_in_parts_that_fails_is_stored_in_no_part(
    url: str, schema: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every append of the batch gets the error, so no append may be stored."""
    connection.execute(
        f"""
        CREATE FUNCTION "{schema}".fill() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE disk_full USING MESSAGE = 'No space left on device'; END $$;
        CREATE TRIGGER fill BEFORE INSERT ON "{schema}".event
        FOR EACH ROW WHEN (NEW.type = 'Second') EXECUTE FUNCTION "{schema}".fill()
        """.encode()
    )
    monkeypatch.setattr(committer, "CALL_BYTES", 1_000)
    ours = open_engine(url)
    with pytest.raises(StoreUnavailable, match="No space left"):
        ours.commit([Append((Event(type, data=bytes(600)),)) for type in ("First", "Second")])
    assert ours.head() == 0
    ours.close()


def test_a_large_append_does_without_what_was_prepared(url: str) -> None:
    """Behind a pooler the connection may lack the prepared statement, and a transaction cannot retry one."""
    ours = open_engine(url, connections=1)
    many = Append((Event("A"),) * (CALL_EVENTS + 1))
    ours.commit([Append((Event("Before"),)), many])
    ours.commit([Append((Event("Before"),))] * 2)
    with ours.pool.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    assert list(ours.commit([many])) == [Placed(CALL_EVENTS + 5, 2 * CALL_EVENTS + 5)]
    ours.close()


def test_a_large_append_of_which_an_id_is_stored_is_refused_by_name(store: EventStore) -> None:
    """It is sent in parts; the id that is missing is beyond the first of them."""
    many = [Event("A", id=uuid4()) for _ in range(CALL_EVENTS + 1)]
    store.append(many[:1])
    with pytest.raises(IdsOverlap) as failed:
        store.append(many)
    assert (failed.value.stored, failed.value.missing) == (many[0].id, many[-1].id)
    assert store.append(many[1:]) == Placed(2, CALL_EVENTS + 1)
    assert store.append(many) == Placed(1, CALL_EVENTS + 1, already=True)


def test_a_conflict_with_a_large_event_names_it_as_well(store: EventStore, database_url: str, schema: str) -> None:
    """It does not travel with the verdict, and the store fetches it."""
    large = Event("A", data=bytes(200_000), tags={"seat:1"})
    store.append([large])
    with hand(database_url, schema) as writer:
        (verdict,) = writer.append(Append((Event("B"),), (no_new(tagged("seat:1")),)))
    assert isinstance(verdict, Conflict)
    assert verdict.conflict is None
    with pytest.raises(Exception, match="at position 1") as failed:
        store.append([Event("B")], no_new(tagged("seat:1")))
    assert failed.value.conflict.event == large
