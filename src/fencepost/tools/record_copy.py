"""Copy the records and checkpoints of a store to a copy of its log.

Both stores list records by name, so the two lists are compared side by side, in bounded memory, and the target gets
what differs. Afterwards it has the names and values of the source; revisions are its own. A checkpoint only grows, so
one that is further in the target stays there. tests/copying/test_copy.py checks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from .. import Delete, EventStore, Put, Record
from ..engine import CHECKPOINTS, engine_of, limits, record_pages


def copy_records(source: EventStore, target: EventStore) -> int:
    """Make the target's records and checkpoints those of the source. Returns how many have changed."""
    changed = 0
    for page in record_pages(engine_of(source), CHECKPOINTS):
        for stored in page:
            name, position = stored.name.removeprefix(CHECKPOINTS), int(stored.value)
            if position > target.checkpoint(name):
                target.append([], checkpoint=(name, position))
                changed += 1
    changes = _changes(source.records.list(), target.records.list())
    while some := list(islice(changes, limits.MAX_RECORDS)):
        target.append([], records=some)
        changed += len(some)
    return changed


def _changes(wanted: Iterator[Record], found: Iterator[Record]) -> Iterator[Put | Delete]:
    """What turns the found records into the wanted ones. Both are ordered by name."""
    name = attrgetter("name")
    old = next(found, None)
    for new in wanted:
        while old is not None and name(old) < new.name:
            yield Delete(old.name, old.revision)
            old = next(found, None)
        if old is None or name(old) > new.name:
            yield Put(new.name, new.value, 0)
        else:
            if old.value != new.value:
                yield Put(new.name, new.value, old.revision)
            old = next(found, None)
    while old is not None:
        yield Delete(old.name, old.revision)
        old = next(found, None)
