"""Hypothesis strategies for events, logs and queries.

There are few types and tags, so that events and queries match often. Some contain what could be mistaken for a
separator, a quote or another tag, and one type has the text of a tag. Every test that compares a way of matching with
`fencepost.buckets.matches` generates its cases here; docs/explanation/correctness.md lists these tests.
"""

from __future__ import annotations

from hypothesis import strategies as st

from ..model import Event, Query, QueryItem

TYPES = ["A", "B", "x"]
TAGS = ["x", "y", "x:y", 'x","y', "é\U0001f600"]  # five: tests rename them one by one

types = st.sampled_from(TYPES)
tags = st.frozensets(st.sampled_from(TAGS), max_size=4)

events = st.builds(
    Event,
    types,
    data=st.binary(max_size=4),
    tags=tags,
    metadata=st.dictionaries(st.sampled_from(["by", "at"]), st.text("ab\0é\n", max_size=3), max_size=2),
)

# Of each shape equally often: types and tags, one of the two, neither.
items = st.builds(
    QueryItem,
    types=st.just(frozenset[str]()) | st.frozensets(types, min_size=1, max_size=2),
    tags=st.just(frozenset[str]()) | st.frozensets(st.sampled_from(TAGS), min_size=1, max_size=3),
)

queries = st.builds(Query, st.lists(items, min_size=1, max_size=3))

logs = st.lists(events, min_size=1, max_size=24)
