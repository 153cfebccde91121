"""A restore of many events indexes them in its own transaction: whatever happens, the index covers what is stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.sqlite.outside import outside

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, EventStore, InvalidInput, Query, SequencedEvent
from fencepost.buckets import matches
from fencepost.engine import engine_of, restore
from fencepost.engines.sqlite import sizes, verify
from fencepost.engines.sqlite.engine import SqliteEngine

pytestmark = pytest.mark.usefixtures("small")

ROOT = Path(__file__).parents[2]
TAGS = ["all", 'q"uote', "back\\slash", "tab\t", "\x01", "\x7f", "é", "\u2028", "😀", "[", "a,b", "1"]


def made(count: int, first: int = 1) -> list[SequencedEvent]:
    """Events in stored form, some with ids, tags of every kind and metadata."""
    log = []
    for position in range(first, first + count):
        tags = {TAGS[position % len(TAGS)], TAGS[position % 5], f"n:{position}"} if position % 7 else frozenset[str]()
        id = UUID(int=position * 0x9E3779B97F4A7C15) if position % 3 else None
        metadata = {"by": "ada"} if position % 4 == 0 else {}
        event = SequencedEvent(position, f"T{position % 3}", frozenset(tags), b"%d" % position, position, id, metadata)
        log.append(SequencedEvent(*event.stored))
    return log


QUERIES = [
    Query.all(),
    Query.of(types={"T1"}),
    *(Query.of(tags={tag}) for tag in TAGS),
    Query.of(types={"T0", "T2"}, tags={"all"}),
    Query.of(tags={"all", "n:24"}),
    Query.of(tags={"n:40"}) | Query.of(types={"T2"}, tags={"é"}),
    Query.of(tags={"absent"}),
]


def check_whole(store: EventStore, path: Path, log: list[SequencedEvent]) -> None:
    """The store answers every question as the definition of matching does."""
    for query in QUERIES:
        expected = [event for event in log if matches(event, query)]
        assert list(store.read(query)) == expected
        assert list(store.read(query, backwards=True)) == expected[::-1]
        for after in (0, len(log) // 2, len(log)):
            condition = AppendCondition(query, after=after)
            first = next((event for event in expected if event.position > after), None)
            if first is not None:
                with pytest.raises(ConditionFailed) as failed:
                    store.append([Event("Never")], condition)
                assert failed.value.conflict == first
    for event in log:
        if event.id is not None:
            assert store.append([event.event]).already
    assert verify(path).problems == []
    head = store.append([Event("Next")], AppendCondition(Query.of(tags={"absent"}), after=0)).first
    assert head == len(log) + 1


@pytest.mark.parametrize("parts", [[60], [1, 2, 57], [3, 1, 40, 2, 14], [20, 20, 20], [4] * 15, [1] * 60])
def test_a_restored_store_answers_as_its_log_says(path: Path, parts: list[int]) -> None:
    log = made(60)
    with fencepost.open(path) as store, fencepost.open(path) as other:
        assert other.head() == 0
        first = 0
        for count in parts:
            restore(store, log[first : first + count])
            first += count
            assert list(other.read(Query.of(tags={"all"}))) == [
                event for event in log[:first] if "all" in event.tags
            ], "another handle sees each part at once"
        check_whole(other, path, log)
    with fencepost.open(path) as again:
        assert list(again.read(up_to=60)) == log


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)


@given(st.lists(st.tuples(TEXT, st.frozensets(TEXT, max_size=4)), min_size=8, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_index_has_every_tag_of_whatever_alphabet(
    tmp_path_factory: pytest.TempPathFactory, contents: list[tuple[str, frozenset[str]]]
) -> None:
    path = tmp_path_factory.mktemp("restored") / "store.db"
    log = [SequencedEvent(position, *fields, b"", 0) for position, fields in enumerate(contents, start=1)]
    with fencepost.open(path) as store:
        restore(store, log)
        for tag in {tag for event in log for tag in event.tags}:
            assert list(store.read(Query.of(tags={tag}))) == [event for event in log if tag in event.tags]
    assert verify(path).problems == []


def test_a_long_restore_leaves_no_tail(path: Path) -> None:
    log = made(50)
    with fencepost.open(path) as store:
        restore(store, log[:3])
        assert outside(path, "SELECT count(*) FROM generations") == [[0]], "too short to be indexed at once"
        restore(store, log[3:])
        assert outside(path, "SELECT min(first), max(last) FROM generations WHERE state = 'ready'") == [[1, 50]]
        assert isinstance(engine_of(store), SqliteEngine)
        assert len(engine_of(store)._tail.view.tail) == 0


@pytest.mark.parametrize("before", [2, 10, 30])
def test_an_id_that_is_stored_is_refused_wherever_it_is(path: Path, before: int) -> None:
    log = made(40)
    with fencepost.open(path) as store:
        restore(store, log[:before])
        twin = log[30] = replace(log[30], raw_id=log[1].raw_id)
        assert twin.raw_id is not None
        with pytest.raises(InvalidInput, match=f"the id {twin.raw_id.hex()} is stored already"):  # type: ignore[union-attr]
            restore(store, log[before:])
        assert store.head() == before
        assert list(store.read()) == log[:before]
    assert verify(path).problems == []


def test_a_restore_merges_for_as_long_as_it_looks_up_ids(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = made(200)
    with fencepost.open(path) as store:
        monkeypatch.setattr(sizes, "MERGED", 1_000)
        for first in range(0, 190, 10):
            restore(store, log[first : first + 10])
        (before,) = outside(path, "SELECT count(*) FROM generations")
        assert before == [19]
        monkeypatch.setattr(sizes, "MERGED", 2)
        assert isinstance(engine_of(store), SqliteEngine)
        engine_of(store)._writable()._lookup_s = 600.0  # it ends when there is nothing left to merge
        restore(store, log[190:])
        ready = "SELECT count(*) FROM generations WHERE state = 'ready'"
        assert outside(path, ready)[0][0] <= 7
        assert outside(path, "SELECT count(*) FROM generations WHERE state <> 'ready'") == [[0]]
        check_whole(store, path, log)


KILLED = """
import os, signal, sys
from fencepost.engine import engine_of, restore
from tests.support.small import shrink
from tests.sqlite.test_restore import made
shrink()
import fencepost
from fencepost.engines.sqlite import committer, generations, shared_tail

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def killing_at(module, name, number):
    calls, original = [], getattr(module, name)
    def counted(*args):
        calls.append(args)
        return kill() if len(calls) == number else original(*args)
    setattr(module, name, counted)

path, at = sys.argv[1:]
store = fencepost.open(path)
log = made(60)
head = store.head()
restore(store, log[head:head + 20])
if at.startswith("statement"):
    original = committer.index_events
    def index_events(*args):
        killing_at(generations, "run", int(at[-1]))
        original(*args)
    committer.index_events = index_events
elif at == "inserted":
    committer.index_events = kill
elif at == "indexed":
    original = committer.index_events
    committer.index_events = lambda *args: (original(*args), kill())
elif at == "committed":
    shared_tail.SharedTail.reset = kill
elif at == "merging":
    for first in (20, 28, 36):
        restore(store, log[first:first + 8])
    killing_at(committer, "merge_step", 3)
    engine_of(store)._writable()._lookup_s = 600.0
    restore(store, log[44:])
restore(store, log[head + 20:head + 40])
restore(store, log[head + 40:])
"""


@pytest.mark.parametrize(
    ("at", "head"),
    [
        ("inserted", 20),
        *((f"statement {number}", 20) for number in range(1, 6)),
        ("indexed", 20),
        ("committed", 40),
        ("merging", 44),
    ],
)
def test_a_restore_that_is_killed_leaves_whole_parts_and_goes_on(path: Path, at: str, head: int) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), at],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    log = made(60)
    with fencepost.open(path) as store:
        assert list(store.read()) == log[:head]
        assert verify(path).problems == []
        restore(store, log[head:])
        check_whole(store, path, log)


def test_a_restore_that_fails_leaves_the_store_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no more")

    log = made(60)
    with fencepost.open(path) as store:
        restore(store, log[:2])
        with monkeypatch.context() as broken:
            broken.setattr("fencepost.engines.sqlite.committer.index_events", fail)
            with pytest.raises(RuntimeError):
                restore(store, log[2:])
        assert list(store.read()) == log[:2]
        restore(store, log[2:])
        check_whole(store, path, log)


Open = Callable[[], EventStore]


def test_an_append_of_another_process_comes_between_two_parts(open_store: Open, path: Path) -> None:
    log = made(60)
    store, other = open_store(), open_store()
    restore(store, log[:20])
    assert other.append([Event("Between", tags={"all"})]).first == 21
    with pytest.raises(InvalidInput, match="position 22 is next"):
        restore(store, log[20:])
    rest = [SequencedEvent(event.position + 1, *event.stored[1:]) for event in log[20:]]
    restore(store, rest)
    expected = [event for event in (*log[:20], *rest) if "all" in event.tags]
    found = list(other.read(Query.of(tags={"all"})))
    assert [event for event in found if event.type != "Between"] == expected
    assert verify(path).problems == []
