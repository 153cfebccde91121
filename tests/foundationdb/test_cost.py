"""What an append costs, as the table in docs/how-to/foundationdb.md says; and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.foundationdb import cost, table

HOW_TO = (Path(__file__).parents[2] / "docs/how-to/foundationdb.md").read_text()


def test_the_table_in_the_documentation_is_the_one_that_is_counted() -> None:
    assert table() in HOW_TO


def test_stored_keys_are_linear_in_the_tags_and_conflict_ranges_are_bounded() -> None:
    for tags in range(11):
        _, stored, written, ranges, *_ = cost(tags)
        assert stored == 2 + 2 * tags
        assert written == stored + 2, "the head and the token are written, too"
        buckets = 2 * (1 + tags + tags * (tags - 1) // 2)
        assert ranges == buckets + written + 2


def test_the_example_on_the_simulator_runs() -> None:
    example = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)[-1]
    names: dict[str, object] = {}
    exec(
        example + "\nfrom fencepost import Event\nplaced = store.append([Event('A')])\nread = list(store.read())\n",
        names,
    )
    read = names["read"]
    assert isinstance(read, list)
    assert len(read) == 1
