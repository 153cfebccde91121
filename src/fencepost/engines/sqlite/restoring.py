"""What is refused when a log is taken over: positions that do not follow, and ids that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from ...errors import InvalidInput
from ...model import SequencedEvent
from .files import value
from .tail import Tail

# All ids in one statement, in the order of the index: asked one by one, they would take as long as all the rest.
FIRST_STORED: Final = """
SELECT wanted.value FROM json_each(?) AS wanted CROSS JOIN generations CROSS JOIN postings
ON postings.generation = generations.generation AND postings.term = unhex(wanted.value)
WHERE generations.state = 'ready' LIMIT 1
"""


def check_restored(connection: apsw.Connection, tail: Tail, events: Sequence[SequencedEvent]) -> None:
    """In the caller's transaction, with a tail that has caught up."""
    for position, event in enumerate(events, start=tail.head + 1):
        if event.position != position:
            raise InvalidInput("events", f"position {position} is next, not {event.position}")
    ids = [id for id in (event.stored_id for event in events) if id is not None]
    stored = next((id.hex() for id in ids if tail.position_of(id) is not None), None)
    if stored is None and ids and tail.floor:
        stored = value(connection, FIRST_STORED, (msgspec.json.encode(sorted(id.hex() for id in ids)).decode(),))
    if stored is not None:
        raise InvalidInput("events", f"the id {stored} is stored already")
