"""Which events a scan reads: a range of positions, a query, types and times.

A scan may return more events than the types and times allow; the caller, or Spark, filters them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...model import Query

EVERYTHING: Final = Query.all()


@dataclass(frozen=True)
class Selection:
    """The events with after < position <= upto that match the query and the rest."""

    after: int
    upto: int
    query: Query = EVERYTHING
    types: frozenset[str] | None = None
    recorded_from: int | None = None  # microseconds since 1970, both ends included
    recorded_upto: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.after >= self.upto or self.types == frozenset()

    def between(self, after: int, upto: int) -> Selection:
        return replace(self, after=max(self.after, after), upto=min(self.upto, upto))
