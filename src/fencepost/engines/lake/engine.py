"""The read-only engine of a lake: `fencepost.open("lake:FOLDER")`.

It reports a head and scans; every operation that would change the log is refused. Each scan reads the manifest once,
so an export that runs meanwhile does not disturb it. The lake may be in an object store: `lake:s3://BUCKET/PREFIX`.
tests/spark/test_lake.py and tests/spark/test_object_lakes.py compare it with the exported store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from ...address import Address
from ...buckets import matches
from ...core.engine import Capability
from ...core.judging import Append
from ...errors import StoreError
from ...model import Query, RecordedAppend, SequencedEvent
from .columns import appends_of
from .files import existing_manifest
from .paths import Place, lake_location, storage_of
from .reading import read_events, read_recorded

PAGE_EVENTS: Final = 1_024


def open_engine(address: Address) -> LakeEngine:
    return LakeEngine(lake_location(address.path, "address"))


class LakeEngine:
    """The engine of a lake: a head and a scan."""

    capabilities: Final = Capability.RECORD

    def __init__(self, lake: Place) -> None:
        self._lake = storage_of(lake)
        existing_manifest(self._lake)

    def head(self) -> int:
        return existing_manifest(self._lake).upto

    def scan(
        self, query: Query, *, after: int, upto: int, limit: int | None = None, backwards: bool = False
    ) -> Iterator[Sequence[SequencedEvent]]:
        if backwards:
            raise StoreError("a lake is read forwards; read backwards from the store that it was exported from")
        page: list[SequencedEvent] = []
        for event in read_events(self._lake, after=after, upto=upto):
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

    def recorded(self, *, after: int, upto: int) -> Iterator[Sequence[RecordedAppend]]:
        for batch in read_recorded(self._lake, after=after, upto=upto):
            yield list(appends_of(batch))

    def commit(self, appends: Sequence[Append]) -> NoReturn:
        raise StoreError(f"{self._lake.name()}: a lake is read-only; append to the store that it was exported from")

    def wait(self, after: int, timeout_s: float) -> NoReturn:
        raise StoreError(f"{self._lake.name()}: a lake has no subscriptions; subscribe to the store that it came from")

    def checkpoint(self, name: str) -> int:
        return 0

    def interrupt(self) -> None: ...

    def close(self) -> None: ...
