"""Damages copies of SQLite stores at random: bits, bytes, sectors, pages and ends, in the file and its write-ahead log.

Of every damaged copy this must hold:

- a read returns exactly what was stored, or raises a StoreError. A damaged write-ahead log may end the log earlier;
- `verify` ends with a report, and if it finds nothing every read is exact;
- `salvage` saves every event whose pages are as they were, changes none, and says which positions are lost;
- neither `verify` nor `salvage` changes the copy.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import apsw
from tests.support.small import shrink

import fencepost
from fencepost import AppendCondition, Event, EventStore, FormatUnsupported, Query, SequencedEvent, StoreError
from fencepost.engine import Salvage, recorded, salvage, verify
from fencepost.engines.sqlite.salvage import LOST
from fencepost.model import RecordedAppend

EVENTS = 120
LARGE = 9_000  # bytes: three pages of overflow
PAGE_BYTES = 4_096
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
    """A store as it was, and the pages that its events lie on."""

    path: Path
    events: list[SequencedEvent]
    found: list[list[SequencedEvent]]
    checkpoints: dict[str, int]
    recorded: list[RecordedAppend]
    pages: dict[int, set[int]]  # by position; empty if a write-ahead log lies beside the file
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
    counted = {"copies": 0, "exact": 0, "refused": 0}
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
    return f"{counted['copies']} damaged copies: {counted['exact']} read exactly, {counted['refused']} refused"


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
    forged = forged_page(path.with_name(f"forger-{path.name}"))
    with fencepost.open(path, record_conditions=True) as store:
        for number in range(1, EVENTS + 1):
            store.append(
                [event(number, chance, forged)],
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
    return Original(path, events, found, checkpoints, recorded, {} if log else pages_of_events(path), log)


def event(number: int, chance: random.Random, forged: bytes) -> Event:
    """Large events hold pages of other events, with their checksums: what a client would send to forge events."""
    tags = {"all", f"n:{number}", f"half:{number % 2}"} if number % 9 else set()
    if number % 10 == 0:
        tags.add('ü "quoted"')
    small = chance.randbytes(chance.choice((0, 5, 40, 200)))
    large = (chance.randbytes(chance.randrange(4_096)) + forged * 3)[:LARGE]
    return Event(
        f"T{number % 3}",
        data=large if number % 25 == 0 else small,
        tags=tags,
        id=UUID(int=chance.getrandbits(128)) if number % 4 == 0 else None,
        metadata={"by": "me", "ü": "x" * (number % 30)} if number % 5 == 0 else None,
    )


def forged_page(path: Path) -> bytes:
    """A page of events, as SQLite has written it, with its checksum; `path` is a store to make it with."""
    with fencepost.open(path) as store:
        store.append([Event("Forged", data=b"forged", tags={"all"})] * 30)
    with closing(apsw.Connection(str(path))) as connection:
        page = connection.execute("SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf'").get
    return path.read_bytes()[(page - 1) * PAGE_BYTES : page * PAGE_BYTES]


def everything(store: EventStore) -> tuple[Any, ...]:
    return (
        list(store.read()),
        [list(store.read(query)) for query in QUERIES],
        {name: store.checkpoint(name) for name in CHECKPOINTS},
        list(recorded(store)),
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


def pages_of_events(path: Path) -> dict[int, set[int]]:
    """The pages that each event lies on: its leaf, and the pages on which its data goes on."""
    with closing(apsw.Connection(str(path))) as connection:
        sql = "SELECT path, pageno, pagetype, ncell FROM dbstat WHERE name = 'events' ORDER BY path"
        rows = connection.execute(sql).fetchall()
    pages: dict[int, set[int]] = {}
    position = 0
    for place, page, kind, cells in rows:
        if kind == "leaf":
            for cell in range(cells):
                position += 1
                begin = f"{place}{cell:03x}+"
                pages[position] = {page, *(other for more, other, *_ in rows if more.startswith(begin))}
    assert len(pages) == EVENTS
    return pages


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
        # SQLite's checksum of a page of zeros is zero, so a page is overwritten with something else.
        content[where.start : where.stop] = bytes(len(where)) if kind == "sector" else chance.randbytes(len(where))
    victim.write_bytes(content)
    return Damage(kind, where, in_log)


def attack(original: Original, damage: Damage, copy: Path) -> str:
    """What became of the reads: exact or refused."""
    before = {path: path.read_bytes() for path in files(copy)}
    complaint = verified(original, damage, copy)
    saved(original, damage, copy)
    assert {path: path.read_bytes() for path in files(copy)} == before, "the copy was changed"
    return read(original, copy, complaint)


def files(copy: Path) -> list[Path]:
    return [path for path in (copy, Path(f"{copy}-wal")) if path.exists() and path.stat().st_size]


def verified(original: Original, damage: Damage, copy: Path) -> bool:
    """Whether `verify` has found something."""
    try:
        report = verify(copy)
    except FormatUnsupported:
        assert damage.where.start < PAGE_BYTES, "the first page is as it was, so this is a store"
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
                append.last: append for append in recorded(store)
            }.items()
    lost = {position for first, last in result.lost for position in range(first, last + 1)}
    for event in original.events:
        found = events.get(event.position)
        if found is None or found.type == LOST:
            assert found is None or event.position in lost
            damaged = range(damage.where.start // PAGE_BYTES + 1, (damage.where.stop - 1) // PAGE_BYTES + 2)
            touched = damage.in_log or original.has_log or not original.pages[event.position].isdisjoint(damaged)
            assert touched, f"event {event.position} was not damaged, and is lost"
        else:
            assert found == event, f"event {event.position} was changed"
    assert len(events) <= len(original.events)


def read(original: Original, copy: Path, complaint: bool) -> str:
    """Everything that can be read, each by itself; an append at last, which judges conditions."""
    outcomes = {"exact"}
    try:
        store = fencepost.open(copy, create=False, record_conditions=True)
    except StoreError:
        return "refused"
    with store:
        outcomes.add(compared(lambda: list(store.read()), original.events, original, complaint))
        backwards = original.events[::-1]
        if not original.has_log:
            outcomes.add(compared(lambda: list(store.read(backwards=True)), backwards, original, complaint))
        for query, found in zip(QUERIES, original.found, strict=True):
            outcomes.add(compared(lambda query=query: list(store.read(query)), found, original, complaint))  # type: ignore[misc]
        for name, position in original.checkpoints.items():
            outcomes.add(compared(lambda name=name: store.checkpoint(name), position, original, complaint))  # type: ignore[misc]
        outcomes.add(compared(lambda: list(recorded(store)), original.recorded, original, complaint))
        try:
            store.append([Event("New")] * 6, AppendCondition(Query.of(types={"Absent"})))
        except StoreError:
            outcomes.add("refused")
    return "refused" if "refused" in outcomes else "exact"


def compared(read: Callable[[], Any], stored: Any, original: Original, complaint: bool) -> str:
    try:
        found = read()
    except StoreError:
        assert complaint or original.has_log, "a read was refused, and verify has found nothing"
        return "refused"
    if found != stored:
        assert original.has_log, f"{found!r:.200} instead of {stored!r:.200}"
        # It may have ended earlier: SQLite takes a damaged log as one that a crash has cut.
        if isinstance(found, int):
            assert found <= stored, f"{found} instead of {stored}"
        else:
            assert found == stored[: len(found)], "neither what was stored, nor the beginning of it"
    return "exact"
