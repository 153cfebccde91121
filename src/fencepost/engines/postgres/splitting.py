"""How appends are divided among calls, so that the memory that a call takes in client and server is bounded.

The appends of a batch are grouped into calls of limited size. An append that exceeds the limits by itself is large:
it gets several calls, each with a chunk of its events. All calls run in one transaction (committing.py), so dividing
a batch changes no verdict. tests/postgres/test_batches.py compares them with the verdicts of the memory engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...core.judging import Append

CALL_EVENTS: Final = 4_096
CALL_BYTES: Final = 8 * 2**20  # of data; an event that is larger is sent alone
# Limits for a batch that is sent on the event loop: encoding this many events blocks the loop for 3 ms.
LOOP_EVENTS: Final = 256
LOOP_BYTES: Final = 2**20


def fits_one_call(appends: Iterable[Append]) -> bool:
    return _is_within(appends, CALL_EVENTS, CALL_BYTES)


def fits_event_loop(appends: Iterable[Append]) -> bool:
    return _is_within(appends, LOOP_EVENTS, LOOP_BYTES)


def groups(appends: Sequence[Append]) -> Iterator[list[Append]]:
    """The appends in order, in groups for one call each. A large append is a group of its own."""
    group: list[Append] = []
    group_bytes = 0
    for append in appends:
        append_bytes = sum(len(event.data) for event in append.events)
        is_large = not fits_one_call([append])
        if group and (is_large or group_bytes + append_bytes > CALL_BYTES):
            yield group
            group, group_bytes = [], 0
        group.append(append)
        group_bytes += append_bytes
        if is_large:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def chunks(append: Append) -> Iterator[tuple[int, int]]:
    """The chunks of a large append: the index of the first event of each, and the index after its last one."""
    begin = chunk_bytes = 0
    for index, event in enumerate(append.events):
        chunk_bytes += len(event.data)
        if index > begin and (index - begin == CALL_EVENTS or chunk_bytes > CALL_BYTES):
            yield begin, index
            begin, chunk_bytes = index, len(event.data)
    yield begin, len(append.events)


def _is_within(appends: Iterable[Append], events: int, data_bytes: int) -> bool:
    sizes = [len(event.data) for append in appends for event in append.events]
    return len(sizes) <= events and sum(sizes) <= data_bytes
