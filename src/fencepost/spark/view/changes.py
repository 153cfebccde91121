"""The changes of a view between two positions: for each changed key, its row before and after.

A change is (key, before, after, position): `before` is null for a key that the view did not have, `position` is that of
the view which has `after`. Keys never leave a view, so `after` is never null. A row of a view changes exactly when
its `position` or its `error` does, so no other column is compared.

A view in a folder or an object store can record the changes of each refresh. Then they are read; otherwise two versions
are compared.
Invariant: applying the changes from p to q to the view at p gives the view at q, whichever way they were found.
tests/spark/test_view_changes.py holds this, tests/spark/slow/test_view_changes_kills.py with killed refreshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from ..folding import BEFORE, ERROR, POSITION, Plan, refuse_names

AFTER: Final = "after"
ORDER: Final = "number of the refresh"  # with spaces, which no field's name has


def check_names(plan: Plan) -> None:
    """Refuse a projection whose columns would collide with those of changes."""
    problem = "changes of a view have a column of this name; rename the parameter, and name its tag with tag('...')"
    refuse_names("parameter", plan.scope, [BEFORE, AFTER, POSITION], problem)
    problem = "a view that records changes keeps a column of this name; use another with schema="
    refuse_names("column", plan.state.names, [BEFORE], problem)


def compared(plan: Plan, before: DataFrame | None, after: DataFrame, position: int) -> DataFrame:
    """The changes between two versions, each a row for every key; no version before is a view without rows."""
    columns = plan.row_schema(after.schema[POSITION].dataType).names
    new = after.select(*plan.scope, F.struct(*columns).alias(AFTER))
    if before is None:
        nothing = F.lit(None).cast(new.schema[AFTER].dataType).alias(BEFORE)
        joined = new.select(*plan.scope, nothing, AFTER)
    else:
        old = before.select(*plan.scope, F.struct(*columns).alias(BEFORE))
        joined = new.join(old, list(plan.scope), "left").select(*plan.scope, BEFORE, AFTER)
    return _changes(plan, joined, position)


def combined(plan: Plan, refreshes: Sequence[DataFrame], position: int) -> DataFrame:
    """The changes of consecutive refreshes as one: of each key, its first row before and its last row after.

    `refreshes` are the recorded rows, oldest first.
    """
    columns = plan.row_schema(refreshes[0].schema[POSITION].dataType).names
    rows = [
        frame.select(*plan.keys, *plan.scope, BEFORE, F.struct(*columns).alias(AFTER), F.lit(number).alias(ORDER))
        for number, frame in enumerate(refreshes)
    ]
    if len(rows) == 1:
        return _changes(plan, rows[0], position)
    first = F.min_by(F.struct(*plan.scope, BEFORE), ORDER).alias("first")
    last = F.max_by(AFTER, ORDER).alias(AFTER)
    whole = reduce(DataFrame.unionByName, rows).groupBy(*plan.keys).agg(first, last)
    return _changes(plan, whole.select("first.*", AFTER), position)


def _changes(plan: Plan, rows: DataFrame, position: int) -> DataFrame:
    before, after = F.col(BEFORE), F.col(AFTER)
    changed = before.isNull() | _differ(before, after, POSITION)
    if plan.on_error == "column":
        changed = changed | _differ(before, after, ERROR)
    found = _position_type(rows)
    return rows.where(changed).select(*plan.scope, BEFORE, AFTER, F.lit(position).cast(found).alias(POSITION))


def _differ(before: Column, after: Column, name: str) -> Column:
    return ~before.getField(name).eqNullSafe(after.getField(name))


def _position_type(rows: DataFrame) -> DataType:
    row = rows.schema[AFTER].dataType
    assert isinstance(row, StructType)
    return row[POSITION].dataType
