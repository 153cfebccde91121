"""The ranges of keys in which records are listed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.record_keys import key_range

NAMES = st.text(st.sampled_from("a/\x01\x7f\ud7ff\ue000\uffff\U0010ffff"), max_size=4)


@given(prefix=NAMES, after=NAMES | st.just(""), key=NAMES)
def test_a_range_holds_the_keys_that_begin_with_the_prefix_and_come_after(prefix: str, after: str, key: str) -> None:
    prefix, key = f"records/{prefix}", f"records/{key}"
    after = f"records/{after}" if after else ""
    begin, end = key_range(prefix, after)
    expected = key.startswith(prefix) and key > after
    assert (begin <= key < end) == expected
    assert (begin.encode() <= key.encode() < end.encode()) == expected
