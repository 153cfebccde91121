"""The read-only engine of a lake: `fencepost.open("lake:FOLDER")`.

It reports a head and scans; every operation that would change the log is refused. Each scan reads one version of the
lake's table, so an export that runs meanwhile does not disturb it. The lake may be in an object store:
`lake:s3://BUCKET/PREFIX`. tests/spark/test_lake.py and tests/spark/test_object_lakes.py compare it with the exported
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from ... import Query, Record, SequencedEvent
from ...engine import Address, Append, Capability, RecordedAppend, matches
from ...errors import StoreError
from ..location import location_of
from .files import Lake, lake_at
from .reader import appends_of, read_events, read_recorded

PAGE_EVENTS: Final = 1_024


def open_engine(address: Address) -> LakeEngine:
    return LakeEngine(location_of(address.path, "address"))


class LakeEngine:
    """The engine of a lake: a head and a scan."""

    capabilities: Final = Capability.RECORDED_APPENDS

    def __init__(self, location: str) -> None:
        self._location = location
        self._lake()

    def _lake(self) -> Lake:
        return lake_at(self._location, argument="address")

    def head(self) -> int:
        return self._lake().up_to

    def scan(
        self, query: Query, *, after: int, up_to: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if backwards:
            raise StoreError("a lake is read forwards; read backwards from the store that it was exported from")
        page: list[SequencedEvent] = []
        for event in read_events(self._lake(), after=after, up_to=up_to):
            if limit == 0:
                break
            if matches(event, query):
                page.append(event)
                limit = None if limit is None else limit - 1
            if len(page) == PAGE_EVENTS:
                yield page
                page = []
        if page:
            yield page

    def recorded(self, *, after: int, up_to: int) -> Iterator[Sequence[RecordedAppend]]:
        for batch in read_recorded(self._lake(), after=after, up_to=up_to):
            yield list(appends_of(batch))

    def commit(self, appends: Sequence[Append]) -> NoReturn:
        raise StoreError(f"{self._location}: a lake is read-only; append to the store that it was exported from")

    def wait(self, after: int, timeout_s: float) -> NoReturn:
        raise StoreError(f"{self._location}: a lake has no subscriptions; subscribe to the store that it came from")

    def record(self, key: str) -> Record | None:
        return None

    def records(self, prefix: str, *, after: str, limit: int) -> Sequence[Record]:
        return []

    def interrupt(self) -> None: ...

    def close(self) -> None: ...
