"""`what_if`: what another boundary would have done to the recorded decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ... import Query
from ...errors import FencepostError, InvalidInput, StoreCorrupt
from ..basics import Store, position_column
from ..frames import Folder, prefix_of
from ..frames import events as events_of
from ..scanning import recorded
from .boundaries import CONDITION, UNREADABLE, Boundary, matched_items, supposed_questions
from .proving import described, proofs_of


@dataclass(frozen=True)
class WhatIf:
    """The effect of another boundary on the recorded decisions."""

    decisions: int  # recorded appends with a condition
    guarded: int  # decisions to which the boundary applies
    conflicts: int  # decisions that the boundary would have refused
    refused: DataFrame = field(repr=False)


def what_if(
    spark: SparkSession, store: Store, boundary: Boundary, *, up_to: int | None = None, lake: Folder | None = None
) -> WhatIf:
    """How many recorded decisions would have conflicted, had `boundary` been the query of their condition.

    A tag of the query that ends in `:*` stands for all tags with that prefix that the decision's own conditions name:
    `Query.of(tags={"wallet:*"})` is the boundary around each wallet of the decision. `boundary` can also be a function
    from a `RecordedAppend` to a query, or None for no condition. The decision had read up to the smallest `after` of
    its conditions. `lake` is the folder of a lake of the same log, which is read as far as it goes.

    Raises `StoreCorrupt` if recorded conditions cannot be decoded, and `InvalidInput` if the boundary of a decision
    would exceed the limits of a query.
    """
    if not isinstance(boundary, Query) and not callable(boundary):
        raise InvalidInput("boundary", f"a Query or a function is needed, not {type(boundary).__name__}")
    prefix = prefix_of(spark, store, up_to=up_to, lake=lake)
    address = prefix.address
    columns = f"{position_column(address)}, type string, tags array<string>"
    events = events_of(spark, prefix, columns=columns)
    appends = recorded(spark, prefix)
    questions = supposed_questions(appends, boundary)
    proofs = proofs_of(matched_items(events, questions), questions).persist()
    is_answered = F.col("kind") == CONDITION
    guarded, conflicts, failed = proofs.agg(
        F.count_if(is_answered), F.count("conflict"), F.count_if(~is_answered)
    ).collect()[0]
    if failed:
        raise _unanswered(questions)
    decided = appends.where("conditions <> '[]'").count()
    refused = described(proofs.where("conflict IS NOT NULL"), questions)
    return WhatIf(decided, guarded, conflicts, refused.select("first", "last", "after", "boundary", "conflict"))


def _unanswered(questions: DataFrame) -> FencepostError:
    """Why the boundary could not be tested, for the first append where that is so."""
    row = questions.where(F.col("kind") != CONDITION).orderBy("first").limit(1).collect()[0]
    place = f"the append from {row['first']} to {row['last']}"
    if row["kind"] == UNREADABLE:
        return StoreCorrupt(f"what was recorded of {place} cannot be decoded: {row['boundary']}; audit the store")
    return InvalidInput("boundary", f"for {place}, {row['boundary']}")
