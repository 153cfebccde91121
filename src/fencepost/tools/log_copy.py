"""Copy a log into another store, with positions, ids, times and recorded conditions.

A part is restored in one transaction, so the target always holds a beginning of the source's log. A copy that was
killed is run again: it compares what the target holds with the source, and continues after the target's head. A target
that holds any other log is refused before anything is written. At the end the target is read again, and its digest
must be that of what was read from the source. tests/copying/test_copy.py and test_kill.py hold this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from typing import Final

import msgspec

from .. import EventStore
from ..engine import Capability, RecordedAppend, engine_of, restore
from ..errors import InvalidInput, StoreCorrupt, StoreError
from .part import PART_EVENTS, StoredRow, log_parts, no_collections, read_ahead, recorded_appends
from .record_copy import copy_records

COMPARED_EVENTS: Final = 1_000  # how many of the target's last events are compared if the copy is not verified

_encode: Final = msgspec.msgpack.Encoder().encode  # each field carries its length, so no two logs have equal bytes

Progress = Callable[[str, int, int], None]  # what is being done, how many events are done, how many in all


class LogDigest:
    """A digest of a log: the same for the same events and recorded conditions, whatever engine holds them.

    It covers every field of every event in stored form, and does not depend on how the log was cut into pages. `copy`
    starts a second digest from the same beginning. tests/copying/test_digests.py holds this.
    """

    def __init__(self) -> None:
        self._events = sha256()
        self._appends = sha256()

    def add_events(self, rows: Iterable[StoredRow]) -> None:
        self._events.update(b"".join(map(_encode, rows)))

    def add_appends(self, appends: Iterable[RecordedAppend]) -> None:
        for append in appends:
            self._appends.update(_encode((append.first, append.last, append.conditions_json, append.unless_json)))

    def copy(self) -> LogDigest:
        twin = LogDigest()
        twin._events, twin._appends = self._events.copy(), self._appends.copy()
        return twin

    def hexdigest(self) -> str:
        return sha256(self._events.digest() + self._appends.digest()).hexdigest()


@dataclass(frozen=True)
class Copied:
    """What a copy did. `digest` is the one of both logs up to `head`, None if the copy was not verified."""

    head: int
    events: int  # copied now; the target held the others before
    appends: int
    records: int  # records and checkpoints that have changed in the target
    digest: str | None


def copy_log(
    source: EventStore,
    target: EventStore,
    *,
    up_to: int | None = None,
    verify: bool = True,
    records: bool = False,
    on_progress: Progress = lambda doing, done, total: None,
) -> Copied:
    """Bring the target up to the source's head, or up to `up_to`.

    `verify=False` compares only the last events that the target holds before, and does not read the target afterwards.
    With `records`, the target gets the source's records and checkpoints too. They are copied before the new events, so
    that none of them is ahead of the copied log.
    """
    if records and up_to is not None:
        raise InvalidInput("up_to", "records and checkpoints are those of the whole log: copy all of it")
    if Capability.RESTORE not in engine_of(target).capabilities:
        raise StoreError("to: this engine assigns positions itself, so it cannot take events with their positions")
    end = source.head() if up_to is None else min(up_to, source.head())
    start = target.head()
    if start > end:
        raise InvalidInput(
            "to", f"it holds {start} events, and there are {end} to copy: are the two addresses in the wrong order?"
        )
    with no_collections():
        ours = LogDigest()
        compare(source, target, 0 if verify else max(0, start - COMPARED_EVENTS), start, ours, on_progress)
        theirs = ours.copy()
        changed = copy_records(source, target) if records else 0
        end = source.head() if records else end
        events = appends = 0
        for part in read_ahead(log_parts(source, start, end)):
            ours.add_events(part.rows)
            ours.add_appends(part.appends)
            restore(target, part.events, part.appends)
            events += len(part.events)
            appends += len(part.appends)
            on_progress("copying", events, end - start)
        if verify:
            _read_again(target, start, end, theirs, on_progress)
            if theirs.hexdigest() != ours.hexdigest():
                raise StoreCorrupt(
                    f"the copy differs from its source between positions {start + 1} and {end}: do not use it; "
                    "check both stores with `fencepost verify`, then copy into a new store"
                )
    return Copied(end, events, appends, changed, ours.hexdigest() if verify else None)


def compare(
    source: EventStore, target: EventStore, after: int, up_to: int, digest: LogDigest, on_progress: Progress
) -> None:
    """Refuse a target that holds another log between `after` and `up_to`; add what both hold to the digest."""
    rows = []
    pairs = zip_longest(source.read(after=after, up_to=up_to), target.read(after=after, up_to=up_to))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours is None or theirs is None or ours.stored != theirs.stored:
            raise _another_log(f"its event at position {(theirs or ours).position} differs from the source's")
        rows.append(ours.stored)
        if number % PART_EVENTS == 0:
            digest.add_events(rows)
            rows = []
            on_progress("comparing", number, up_to - after)
    digest.add_events(rows)
    records = zip_longest(recorded_appends(source, after, up_to), recorded_appends(target, after, up_to))
    for recorded, copied in records:
        if recorded is None or copied is None or recorded != copied:
            last = (copied or recorded).last
            raise _another_log(f"the recorded conditions of the append that ends at {last} differ from the source's")
        digest.add_appends([recorded])


def _another_log(difference: str) -> InvalidInput:
    return InvalidInput("to", f"it holds another log, so nothing was copied: {difference}")


def _read_again(store: EventStore, after: int, up_to: int, digest: LogDigest, on_progress: Progress) -> None:
    done = 0
    for part in log_parts(store, after, up_to):
        digest.add_events(part.rows)
        digest.add_appends(part.appends)
        done += len(part.events)
        on_progress("verifying", done, up_to - after)
