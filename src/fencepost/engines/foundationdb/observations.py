"""What observers are told of a store on FoundationDB: `observe(observer, of=store.engine)`.

Latencies and counts for metrics, and error codes as FoundationDB gives them. See `fencepost.core.observers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.observers import Observation


@dataclass(frozen=True, slots=True)
class AppendTried(Observation):
    """An append was stored, refused or given up."""

    outcome: str  # "stored", "refused" or "failed"
    codes: tuple[int, ...]  # of the tries that failed; there was one try more, unless the outcome is "failed"
    token_found: bool  # an earlier try had been stored though it had failed
    pages_judged: int  # range reads that the conditions took
    judged_s: float  # time taken to get read versions and to judge the past, in all tries that came to a commit
    commit_s: float  # time taken to commit, in all tries


@dataclass(frozen=True, slots=True)
class TryFailed(Observation):
    """A transaction of any call failed. The call tries again, or fails if that is of no use."""

    code: int
    number: int  # of the try, from 0


@dataclass(frozen=True, slots=True)
class WatchFellBack(Observation):
    """Watches fail, so a subscription looks for new events every 0.1 s. Told once, until watches work again."""

    code: int
