"""One partition of the log, read forwards or backwards, some events ahead of where the merged reading is.

The merged order is that of positions. The next event of the whole is the first of those that the parts have ready, once
every part has one ready or has ended. An event has one row or several. If not all rows of an event came, the part reads
it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import groupby

from ...model import SequencedEvent
from .binding import KeyValue
from .keys import at, position_in
from .pieces import event_of
from .postings import position_at
from .ranges import Fetch, RangeRead
from .waiting import Steps


class LogPart:
    def __init__(self, log: bytes, after: int, upto: int, backwards: bool) -> None:
        self._log = log
        self._backwards = backwards
        self._begin, self._end = at(log, after + 1), at(log, upto + 1)
        self._rows = 0
        self._pending: RangeRead | None = None
        self.events: deque[SequencedEvent] = deque()
        self.ended = after >= upto

    @property
    def rank(self) -> int:
        """Where the first event that is ready stands in the order of reading."""
        return position_at(self.events[0].position, self._backwards)

    def renew(self) -> None:
        """Forget the read under way: its transaction is over."""
        self._pending = None

    def begin(self, fetch: Fetch, rows: int) -> None:
        """Begin to read the next rows."""
        if self._pending is None:
            self._rows = rows
            self._pending = fetch(self._begin, self._end, rows, self._backwards)

    def take(self, fetch: Fetch) -> Steps[None]:
        """Wait for the rows, and make events of them."""
        assert self._pending is not None
        rows = yield from self._pending.rows()
        complete = len(rows) < self._rows
        events = self._whole_events(rows, complete=complete)
        if rows and not events:  # one event has more rows than were asked for
            position = position_in(rows[0].key, self._log)
            rows = yield from fetch(at(self._log, position), at(self._log, position + 1), 0, False).rows()
            events = [event_of(position, [row.value for row in rows])]
        self._pending = None
        self.ended = complete
        if events:
            last = events[-1].position
            self.events.extend(events)
            if self._backwards:
                self._end = at(self._log, last)
            else:
                self._begin = at(self._log, last + 1)

    def _whole_events(self, rows: Sequence[KeyValue], *, complete: bool) -> list[SequencedEvent]:
        """The events in the rows, without the last one if its rows may not all be among them."""
        groups = [
            (position, [row.value for row in group])
            for position, group in groupby(rows, key=lambda row: position_in(row.key, self._log))
        ]
        if self._backwards:
            groups = [(position, pieces[::-1]) for position, pieces in groups]
            # The first piece is the last row of an event, and says how many there are.
            whole_last = bool(groups) and len(rows[-1].key) == len(at(self._log, 0))
        else:
            whole_last = bool(groups) and groups[-1][1][0][0] == len(groups[-1][1]) - 1
        if not complete and not whole_last:
            groups.pop()
        return [event_of(position, pieces) for position, pieces in groups]
