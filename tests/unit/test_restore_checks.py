"""The arguments of a restore: the quick check of common events lets nothing pass that the full check refuses."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import InvalidInput, SequencedEvent
from fencepost.core.arguments import checked_restore
from fencepost.model import MAX_TAG_BYTES, MAX_TAGS


def event(position: int, tags: set[Any]) -> SequencedEvent:
    return SequencedEvent(position, "Happened", frozenset(tags), b"", 0)


@pytest.mark.parametrize(
    "tags",
    [
        {""},
        {"a\0b"},
        {"x" * (MAX_TAG_BYTES + 1)},
        {"\ud800"},
        {"ä" * MAX_TAG_BYTES},
        {1},
        {f"t{number}" for number in range(MAX_TAGS + 1)},
    ],
    ids=["empty", "NUL", "long", "surrogate", "long as UTF-8", "number", "many"],
)
def test_a_bad_tag_is_refused_also_after_events_whose_type_is_known(tags: set[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"events\[1\]\.tags"):
        checked_restore([event(1, {"good"}), event(2, tags)], [])


def test_good_tags_pass_whatever_their_alphabet() -> None:
    events = [event(1, {"good"}), event(2, {"good", "new"}), event(3, {"ä", "x" * MAX_TAG_BYTES}), event(4, {"ä"})]
    assert checked_restore(events, []) == (tuple(events), ())
