"""Many questions answered by one sort: was there a matching event in between?

A *question* is one item of a query, asked at a position of the log: was there an event that matches the item after
`after` and before `first`? Conditions repeat their items thousands of times, so each different item is matched with the
events once (`matching`). The matching positions and the questions about an item are then sorted together, and a running
maximum gives each question the last matching position before `first`. That event conflicts if its position is above
`after`. The work is that of a sort, however often a condition is repeated.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..matching import match


def answered(pairs: DataFrame, questions: DataFrame) -> DataFrame:
    """The questions with `last_match`, the last matching position below `first`, and how many there are, `matched`.

    `questions` has the columns item (the JSON of a query with one item) and first, and whatever else; `pairs` is what
    `matched_items` gives for them.
    """
    extra = [name for name in questions.columns if name not in ("item", "first")]
    asked = questions.select("item", F.col("first").alias("at"), F.lit(0).alias("order"), *extra)
    found = pairs.select("item", F.col("position").alias("at"), F.lit(1).alias("order"))
    before = Window.partitionBy("item").orderBy("at", "order").rowsBetween(Window.unboundedPreceding, -1)
    match_at = F.when(F.col("order") == 1, F.col("at"))
    return (
        asked.unionByName(found, allowMissingColumns=True)
        .withColumns({"last_match": F.max(match_at).over(before), "matched": F.count(match_at).over(before)})
        .where(F.col("order") == 0)
        .select("item", F.col("at").alias("first"), *extra, "last_match", "matched")
    )


def matched_items(events: DataFrame, questions: DataFrame) -> DataFrame:
    """Each different item of the questions with each event that it matches: item, position, type."""
    items = questions.where("item IS NOT NULL").select(F.col("item").alias("query_id"), F.col("item").alias("query"))
    return match(events, items.distinct()).select(F.col("query_id").alias("item"), "position", "type")
