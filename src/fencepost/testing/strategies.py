"""Hypothesis strategies for the words of a store, few enough values that they meet often."""

from __future__ import annotations

from hypothesis import strategies as st

from ..model import AppendCondition, Event, Query, QueryItem

TYPES = ["A", "B", "C"]
TAGS = ["x", "y", "z", "x:y", "é"]

types = st.sampled_from(TYPES)
tags = st.frozensets(st.sampled_from(TAGS), max_size=4)

events = st.builds(
    Event,
    types,
    data=st.binary(max_size=4),
    tags=tags,
    metadata=st.dictionaries(st.sampled_from(["by", "at"]), st.text("ab\0é\n", max_size=3), max_size=2),
)

items = st.builds(
    QueryItem, types=st.frozensets(types, max_size=2), tags=st.frozensets(st.sampled_from(TAGS), max_size=3)
)

queries = st.builds(Query, st.lists(items, min_size=1, max_size=3))


def conditions(head: int) -> st.SearchStrategy[list[AppendCondition]]:
    """Conditions as a client has them who has seen some of a log that ends at `head`."""
    after = st.one_of(st.just(head), st.integers(0, head + 1))
    return st.lists(st.builds(AppendCondition, queries, after=after), max_size=2)
