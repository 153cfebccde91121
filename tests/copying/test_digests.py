"""A digest changes with every field of every event and recorded append, and with nothing else."""

from __future__ import annotations

import pytest

from fencepost.engine import RecordedAppend
from fencepost.tools.log_copy import LogDigest
from fencepost.tools.part import StoredRow

ROW: StoredRow = (1, "Opened", '["a"]', b"x", 5, b"i" * 16, '{"a":"b"}')
CHANGED = (2, "Closed", '["b"]', b"y", 6, None, None)


def digest(*rows: StoredRow, appends: tuple[RecordedAppend, ...] = ()) -> str:
    made = LogDigest()
    made.add_events(rows)
    made.add_appends(appends)
    return made.hexdigest()


@pytest.mark.parametrize("index", range(len(ROW)))
def test_each_field_counts(index: int) -> None:
    changed = (*ROW[:index], CHANGED[index], *ROW[index + 1 :])
    assert digest(changed) != digest(ROW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "append",
    [RecordedAppend(1, 2), RecordedAppend(2, 2), RecordedAppend(1, 1, "[1]"), RecordedAppend(1, 1, "[]", "{}")],
)
def test_each_field_of_a_recorded_append_counts(append: RecordedAppend) -> None:
    assert digest(ROW, appends=(append,)) != digest(ROW, appends=(RecordedAppend(1, 1),))
    assert digest(ROW, appends=(append,)) != digest(ROW)


def test_the_order_counts_and_the_pages_do_not() -> None:
    other = (2, *ROW[1:])
    paged = LogDigest()
    paged.add_events([ROW])
    twin = paged.copy()
    paged.add_events([other])  # type: ignore[list-item]
    assert paged.hexdigest() == digest(ROW, other)  # type: ignore[arg-type]
    assert paged.hexdigest() != digest(other, ROW)  # type: ignore[arg-type]
    assert twin.hexdigest() == digest(ROW)
