"""Damages copies of SQLite stores at random: bits, bytes, sectors, pages and ends, in the file and its write-ahead log.

Of every damaged copy this must hold:

- a read returns exactly what was stored, or raises a StoreError. By tag or type it may also miss events, if
  `verify` finds that: an index entry that is gone leaves no trace. A damaged write-ahead log may end the log earlier;
- `verify` ends with a report, and if it finds nothing every read is exact;
- `salvage` saves every event whose bytes are as they were, changes none, and says which positions are lost;
- neither `verify` nor `salvage` changes the copy.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

from tests.support.small import shrink

import fencepost
from fencepost import AppendCondition, Event, EventStore, FormatUnsupported, Query, SequencedEvent, StoreError
from fencepost.engines.sqlite import Salvage, salvage, verify
from fencepost.engines.sqlite.page_file import PageFile
from fencepost.engines.sqlite.page_scan import scan_pages
from fencepost.engines.sqlite.salvage import LOST
from fencepost.model import RecordedAppend

EVENTS = 120
LARGE = 9_000  # bytes: three pages of overflow
QUERIES = [
    Query.of(tags={"all"}),
    Query.of(tags={"n:7"}),
    Query.of(tags={"half:1", "all"}),
    Query.of(types={"T1"}),
    Query.of(types={"T2"}, tags={"all"}) | Query.of(tags={'ü "quoted"'}),
]
CHECKPOINTS = ["consumer", "other:ü", "absent"]


@dataclass(frozen=True)
class Original:
    """A store as it was, and where its events lie in the file."""

    path: Path
    events: list[SequencedEvent]
    found: list[list[SequencedEvent]]
    checkpoints: dict[str, int]
    recorded: list[RecordedAppend]
    extents: dict[int, list[range]]  # of the file, by position; empty if the event is in the log beside it
    has_log: bool


@dataclass(frozen=True)
class Damage:
    """What was done to a copy."""

    what: str
    where: range
    in_log: bool = False


def run(seconds: float, seed: int) -> str:
    deadline = monotonic() + seconds
    chance = random.Random(seed)
    counted = {"copies": 0, "exact": 0, "refused": 0, "index": 0}
    with tempfile.TemporaryDirectory() as name, small_constants():
        folder = Path(name)
        originals = [make(folder / "plain.db", chance, log=False), make(folder / "logged.db", chance, log=True)]
        while monotonic() < deadline or not counted["copies"]:
            number = counted["copies"]
            original = originals[number % 5 == 4]
            copy = folder / f"copy-{number}.db"
            damage = damaged_copy(original, copy, chance)
            try:
                counted[attack(original, damage, copy)] += 1
            except BaseException as error:
                raise AssertionError(f"seed {seed}, copy {number} of {original.path.name}: {damage}") from error
            for path in folder.glob(f"copy-{number}.db*"):
                path.unlink()
            counted["copies"] += 1
    return (
        f"{counted['copies']} damaged copies: {counted['exact']} read exactly, {counted['refused']} refused, "
        f"{counted['index']} with events missing from the index, as verify said"
    )


@contextmanager
def small_constants() -> Iterator[None]:
    """So that a few events fill several generations."""
    before: list[tuple[Any, str, Any]] = []

    def set(owner: Any, name: str, value: int) -> None:
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        shrink(set)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def make(path: Path, chance: random.Random, *, log: bool) -> Original:
    """A store with events of all shapes; with a write-ahead log beside it, as after a crash, or without."""
    with fencepost.open(path, record_conditions=True) as store:
        for number in range(1, EVENTS + 1):
            store.append(
                [event(number, chance)],
                AppendCondition(Query.of(tags={f"n:{number}"})),
                checkpoint=(CHECKPOINTS[number % 2], number),
            )
        if log:  # a copy in the middle of it
            crashed = path.with_name(f"crashed-{path.name}")
            for suffix in ("", "-wal"):
                shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    path = crashed if log else path
    with kept(path) as copy, fencepost.open(copy, create=False) as store:
        events, found, checkpoints, recorded = everything(store)
    assert len(events) == EVENTS
    return Original(path, events, found, checkpoints, recorded, extents(path), log)


def event(number: int, chance: random.Random) -> Event:
    tags = {"all", f"n:{number}", f"half:{number % 2}"} if number % 9 else set()
    if number % 10 == 0:
        tags.add('ü "quoted"')
    size = LARGE if number % 25 == 0 else chance.choice((0, 5, 40, 200))
    return Event(
        f"T{number % 3}",
        data=chance.randbytes(size),
        tags=tags,
        id=UUID(int=chance.getrandbits(128)) if number % 4 == 0 else None,
        metadata={"by": "me", "ü": "x" * (number % 30)} if number % 5 == 0 else None,
    )


def everything(store: EventStore) -> tuple[Any, ...]:
    return (
        list(store.read()),
        [list(store.read(query)) for query in QUERIES],
        {name: store.checkpoint(name) for name in CHECKPOINTS},
        list(store.recorded()),
    )


@contextmanager
def kept(path: Path) -> Iterator[Path]:
    """A copy to open, since opening a store with a write-ahead log changes it."""
    copy = path.with_name(f"opened-{path.name}")
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    try:
        yield copy
    finally:
        for left in path.parent.glob(f"{copy.name}*"):
            left.unlink()


def extents(path: Path) -> dict[int, list[range]]:
    """The bytes of the file that each event rests on, as far as the page of its cell is in the file."""
    places: dict[int, list[range]] = {}
    with PageFile(str(path)) as pages:
        for position, (number, offset) in scan_pages(pages).events.items():
            if number in pages.log.committed:
                places[position] = []
                continue
            begin = (number - 1) * pages.page_bytes + offset
            length = pages.table_cell(number, offset)[2]
            places[position] = [range(begin, begin + length)]
            chain = pages.page(number)[offset + length - 4 : offset + length]
            if len(pages.table_cell(number, offset)[1]) > pages.usable - 35:
                following = int.from_bytes(chain, "big")
                while following:
                    begin = (following - 1) * pages.page_bytes
                    places[position].append(range(begin, begin + pages.page_bytes))
                    following = int.from_bytes(pages.page(following)[:4], "big")
    return places


def damaged_copy(original: Original, copy: Path, chance: random.Random) -> Damage:
    in_log = original.has_log and chance.random() < 0.5
    for suffix in ("", "-wal") if original.has_log else ("",):
        shutil.copy(f"{original.path}{suffix}", f"{copy}{suffix}")
    victim = Path(f"{copy}-wal") if in_log else copy
    content = bytearray(victim.read_bytes())
    kind = chance.choice(("bit", "bit", "bit", "byte", "bytes", "sector", "page", "end"))
    place = chance.randrange(len(content))
    if chance.random() < 0.3:  # where a page says what it is, which is what breaks trees
        place = place // 4_096 * 4_096 + chance.randrange(40)
    place = min(place, len(content) - 1)
    if kind == "bit":
        where = range(place, place + 1)
        content[place] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        where = range(place, place + 1)
        content[place] ^= chance.randrange(1, 256)
    elif kind == "bytes":
        where = range(place, min(place + chance.randrange(2, 64), len(content)))
        content[where.start : where.stop] = chance.randbytes(len(where))
    elif kind == "end":
        where = range(place, len(content))
        del content[place:]
    else:
        size = 512 if kind == "sector" else 4_096
        where = range(place // size * size, min(place // size * size + size, len(content)))
        content[where.start : where.stop] = bytes(len(where))
    victim.write_bytes(content)
    return Damage(kind, where, in_log)


def attack(original: Original, damage: Damage, copy: Path) -> str:
    """What became of the reads: exact, refused, or index."""
    before = {path: path.read_bytes() for path in files(copy)}
    complaint = verified(original, copy)
    saved(original, damage, copy)
    assert {path: path.read_bytes() for path in files(copy)} == before, "the copy was changed"
    return read(original, damage, copy, complaint)


def files(copy: Path) -> list[Path]:
    return [path for path in (copy, Path(f"{copy}-wal")) if path.exists() and path.stat().st_size]


def verified(original: Original, copy: Path) -> bool:
    """Whether `verify` has found something."""
    try:
        report = verify(copy)
    except FormatUnsupported:
        with PageFile(str(copy)) as pages:
            assert not scan_pages(pages).events, "there are events, so this is a store"
        return True
    if not report.sound and not report.log_is_sound:
        for _, last in report.whole:
            assert last <= len(original.events), "positions that never were"
    return not report.sound


def saved(original: Original, damage: Damage, copy: Path) -> None:
    target = copy.with_name(f"{copy.name}-saved.db")
    try:
        result = salvage(copy, target)
    except FormatUnsupported:
        result = Salvage("", "", lost=[(1, EVENTS)])
        events: dict[int, SequencedEvent] = {}
    else:
        assert verify(target).sound
        with fencepost.open(target, create=False) as store:
            events = {event.position: event for event in store.read()}
            for name in CHECKPOINTS:
                assert store.checkpoint(name) <= original.checkpoints[name]
            assert {append.last: append for append in original.recorded}.items() >= {
                append.last: append for append in store.recorded()
            }.items()
    lost = {position for first, last in result.lost for position in range(first, last + 1)}
    for event in original.events:
        found = events.get(event.position)
        if found is None or found.type == LOST:
            assert found is None or event.position in lost
            touched = (
                damage.in_log
                or not original.extents[event.position]
                or any(
                    max(extent.start, damage.where.start) < min(extent.stop, damage.where.stop)
                    for extent in original.extents[event.position]
                )
            )
            assert touched, f"event {event.position} was not damaged, and is lost"
        else:
            assert found == event, f"event {event.position} was changed"
    assert len(events) <= len(original.events)


def read(original: Original, damage: Damage, copy: Path, complaint: bool) -> str:
    """Everything that can be read, each by itself; an append at last, which judges conditions."""
    outcomes = {"exact"}
    try:
        store = fencepost.open(copy, create=False, record_conditions=True)
    except StoreError:
        return "refused"
    with store:
        outcomes.add(compared(lambda: list(store.read()), original.events, original, complaint, whole=True))
        backwards = original.events[::-1]
        if not original.has_log:
            outcomes.add(compared(lambda: list(store.read(backwards=True)), backwards, original, complaint, whole=True))
        for query, found in zip(QUERIES, original.found, strict=True):
            outcomes.add(compared(lambda query=query: list(store.read(query)), found, original, complaint))  # type: ignore[misc]
        for name, position in original.checkpoints.items():
            outcomes.add(compared(lambda name=name: store.checkpoint(name), position, original, complaint, whole=True))  # type: ignore[misc]
        outcomes.add(compared(lambda: list(store.recorded()), original.recorded, original, complaint, whole=True))
        try:
            store.append([Event("New")] * 6, AppendCondition(Query.of(types={"Absent"})))
        except StoreError:
            outcomes.add("refused")
    return "refused" if "refused" in outcomes else "index" if "index" in outcomes else "exact"


def compared(read: Callable[[], Any], stored: Any, original: Original, complaint: bool, *, whole: bool = False) -> str:
    try:
        found = read()
    except StoreError:
        return "refused"
    if found == stored:
        return "exact"
    if original.has_log:  # it may have ended earlier: SQLite takes a damaged log as one that a crash has cut
        if isinstance(found, int):
            assert found <= stored, f"{found} instead of {stored}"
        else:
            assert found == stored[: len(found)], "neither what was stored, nor the beginning of it"
        return "exact"
    assert not whole, f"{found!r:.200} instead of {stored!r:.200}"
    assert complaint, "events are missing, and verify has found nothing"
    positions = [event.position for event in found]
    assert found == [event for event in stored if event.position in positions], "other events than were stored"
    return "index"
