"""The Python code against the live oracle, on whatever Hypothesis thinks of.

The oracle is built by `make proofs`, which runs these tests and so never skips them. Where it
has not been built the committed vectors hold the line (test_vectors.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.engines.memory import MemoryEngine
from fencepost.engines.sqlite import SqliteEngine

from . import subject
from .oracle import BINARY, Oracle
from .vectors import NASTY, PLAIN, TYPES

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="the oracle is not built; `make proofs` builds it")

often = settings(max_examples=200)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


# Each case draws its strings from a small pool of its own, or nothing would ever match.
strings = st.one_of(
    st.sampled_from(PLAIN),
    st.sampled_from(NASTY),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6),
)
pools = st.lists(strings, min_size=1, max_size=6, unique=True)


def sets(pool: list[str], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(pool), max_size=most, unique=True).map(sorted)


def events(types: list[str], pool: list[str], id: str | None = None) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.sampled_from(types), "tags": sets(pool, 5), "id": st.just(id)})


def queries(types: list[str], pool: list[str]) -> st.SearchStrategy[Any]:
    item = st.fixed_dictionaries({"types": sets(types, 2), "tags": sets(pool, 3)})
    return st.lists(item, min_size=1, max_size=3)


@st.composite
def kernel_cases(draw: st.DrawFn) -> tuple[Any, Any]:
    pool = draw(pools)
    types = draw(st.sampled_from([TYPES, pool]))
    return draw(events(types, pool)), draw(queries(types, pool))


@st.composite
def batch_cases(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    pool = draw(pools)
    ids = [str(UUID(int=number)) for number in range(6)]
    stored = draw(st.lists(st.sampled_from(ids), max_size=3, unique=True))
    log = [draw(events(TYPES, pool, id)) for id in [*stored, *[None] * draw(st.integers(0, 4))]]

    def append() -> Any:
        without = st.integers(0, 3).map(lambda size: [None] * size)
        chosen = draw(st.one_of(without, st.lists(st.sampled_from(ids), max_size=3, unique=True)))
        conditions = st.fixed_dictionaries({"after": st.integers(0, len(log) + 4), "query": queries(TYPES, pool)})
        return {
            "events": [draw(events(TYPES, pool, id)) for id in chosen],
            "conditions": draw(st.lists(conditions, max_size=2)),
            "unless": draw(st.one_of(st.none(), st.none(), queries(TYPES, pool))),
            "checkpoint": draw(st.one_of(st.none(), st.tuples(st.sampled_from("pq"), st.integers(0, 3)).map(list))),
        }

    return log, [append() for _ in range(draw(st.integers(1, 5)))]


@often
@given(case=kernel_cases())
def test_the_kernel_answers_as_the_oracle(oracle: Oracle, case: tuple[Any, Any]) -> None:
    assert subject.kernel(*case) == oracle.kernel(*case)


@often
@given(up_to=st.integers(0, 6), event=pools.flatmap(lambda pool: events(TYPES, pool)))
def test_subsets_up_to_a_size_are_those_of_the_oracle(oracle: Oracle, up_to: int, event: Any) -> None:
    assert subject.up_to(up_to, event) == oracle.up_to(up_to, event)


@settings(max_examples=120)
@given(case=batch_cases())
def test_a_batch_gets_the_verdicts_of_the_oracle(oracle: Oracle, case: tuple[list[Any], list[Any]]) -> None:
    assert subject.batch(MemoryEngine(), *case) == oracle.batch(*case)


@settings(max_examples=40)
@given(case=batch_cases())
def test_the_default_engine_gives_the_verdicts_of_the_oracle(
    oracle: Oracle, tmp_path_factory: pytest.TempPathFactory, case: tuple[list[Any], list[Any]]
) -> None:
    engine = SqliteEngine(str(tmp_path_factory.mktemp("batch") / "store.db"))
    try:
        assert subject.batch(engine, *case) == oracle.batch(*case)
    finally:
        engine.close()


@given(case=batch_cases(), cut=st.integers(0, 5))
def test_the_verdicts_do_not_depend_on_where_a_batch_is_cut(
    oracle: Oracle, case: tuple[list[Any], list[Any]], cut: int
) -> None:
    """Theorem `batching_is_invisible`, on the Python side."""
    log, appends = case
    engine = MemoryEngine()
    first = subject.batch(engine, log, appends[:cut])
    rest = subject.batch(engine, [], appends[cut:])
    whole = oracle.batch(log, appends)
    assert first["verdicts"] + rest["verdicts"] == whole["verdicts"]
    assert rest["head"] == whole["head"]
