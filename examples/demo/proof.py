"""What is proven afterwards: not that nothing was seen to go wrong, but that nothing did."""

from __future__ import annotations

from dataclasses import dataclass

import fencepost
from fencepost.engine import verify
from fencepost.testing.clients import History, Invoked, Saw
from fencepost.testing.history import check


@dataclass(frozen=True, slots=True)
class Claim:
    holds: bool
    text: str


def file_is_sound(path: str) -> Claim:
    """Every event by its checksum, every posting by its event."""
    report = verify(path)
    if report.sound:
        return Claim(True, f"the file is sound: {report.events:,} events are on pages that agree with their checksums")
    return Claim(False, f"the file is not sound: {report.problems[0]}")


def history_is_right(path: str, histories: list[History]) -> Claim:
    """What every client did, was told and saw, held against the log."""
    with fencepost.open(path) as store:
        violations = check(histories, store.read())
    if violations:
        return Claim(False, f"the history is not right: {violations[0]}")
    records = [record for history in histories for record in history]
    appends = sum(isinstance(record, Invoked) for record in records)
    readings = sum(isinstance(record, Saw) for record in records)
    return Claim(
        True,
        f"the history is right: {appends:,} appends and {readings:,} readings of {len(histories)} clients agree with"
        " the log, and each condition held at its position",
    )
