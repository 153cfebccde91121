"""Moves the ground under SQLite stores: working directories, hard links, renames, restores, and readers without locks.

Of every round this must hold: a store answers from the file that it opened; no append is acknowledged that the file at
its path does not hold; a subscription from a position that a restored backup does not have is refused; a reader by
`?mode=ro` shows every append that was acknowledged before it asked, in every thread, and calls no sound store damaged.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

from tests.sqlite import readonly_rounds
from tests.support.processes import Child

import fencepost
from fencepost import Event, Query, StoreCorrupt, StoreUnavailable
from fencepost.engine import backup, verify

ROUNDS = 12  # of the writer beside the readers
THREADS = 3


def run(seconds: float, seed: int) -> str:
    deadline = monotonic() + seconds
    chance = random.Random(seed)
    rounds = 0
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        try:
            while monotonic() < deadline or not rounds:
                folder = Path(name, str(rounds))
                folder.mkdir()
                change_directory(folder, chance)
                os.chdir(home)
                move_the_file(folder, chance)
                restore_a_backup(folder, chance)
                read_beside_writers(folder)
                rounds += 1
        finally:
            os.chdir(home)
    return f"{rounds} rounds, with {rounds * ROUNDS} appends beside readers without locks"


def change_directory(folder: Path, chance: random.Random) -> None:
    places = [folder / each for each in "abc"]
    for number, place in enumerate(places, start=1):
        place.mkdir()
        with fencepost.open(place / "store.db") as store:
            store.append([Event(place.name)] * number)
    os.chdir(places[0])
    expected = 1
    with fencepost.open("store.db") as store:
        for _ in range(10):
            os.chdir(chance.choice(places))
            expected = store.append([Event("a")]).last if chance.random() < 0.5 else expected
            assert store.head() == expected
            assert {event.type for event in store.read()} == {"a"}


def move_the_file(folder: Path, chance: random.Random) -> None:
    """Every append that was acknowledged is in the file at the path, or the store has said that it is gone."""
    path, acknowledged = folder / "moved.db", 0
    store = fencepost.open(path)
    with store:
        for _ in range(5):
            acknowledged = store.append([Event("A")]).last
        how = chance.choice(("link", "rename", "unlink"))
        if how == "link":
            os.link(path, folder / "other.db")
            with suppress(StoreUnavailable):
                fencepost.open(folder / "other.db").close()
                raise AssertionError("a file with two names was opened")
            (folder / "other.db").unlink()
            acknowledged = store.append([Event("A")]).last
        else:
            if how == "rename":
                path.rename(folder / "other.db")
            else:
                path.unlink()
            with suppress(StoreUnavailable):
                store.append([Event("B")])
                raise AssertionError("an append was acknowledged in a file that is not at its path")
    if how == "link":
        with fencepost.open(path) as store:
            assert store.head() == acknowledged


def restore_a_backup(folder: Path, chance: random.Random) -> None:
    """A subscriber that is ahead of a restored log is told so, and one that is not goes on."""
    path, copy = folder / "restored.db", folder / "backup.db"
    with fencepost.open(path) as store:
        kept = store.append([Event("A")] * chance.randint(1, 5)).last
        backup(path, copy)
        lost = store.append([Event("A")] * chance.randint(1, 5)).last
    copy.replace(path)
    with fencepost.open(path) as store:
        for _ in range(chance.randint(0, lost - kept - 1)):
            store.append([Event("B")])
        head = store.head()
        assert head < lost
        try:
            next(store.subscribe(after=lost, timeout_s=0), None)
            raise AssertionError(f"a subscriber after {lost} was not told that the log ends at {head}")
        except StoreCorrupt:
            assert len(list(store.subscribe(after=kept, timeout_s=0))) == head - kept


def read_beside_writers(folder: Path) -> None:
    path = folder / "read.db"
    fencepost.open(path).close()
    problems: list[BaseException] = []
    with Child(readonly_rounds.__file__, folder / "reports", path, ROUNDS) as writer:
        done = threading.Event()
        with fencepost.open(f"{path}?mode=ro") as reader:

            def follow() -> None:
                while not done.is_set():
                    try:
                        known = acknowledged(writer)
                        assert reader.head() >= known, "an acknowledged append is hidden"
                        assert len(list(reader.read(Query.of(tags={"a"})))) >= known
                    except BaseException as error:
                        if "read again" not in str(error):
                            problems.append(error)
                            return

            threads = [threading.Thread(target=follow) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            writer.wait_for(ROUNDS)
            done.set()
            for thread in threads:
                thread.join()
        writer.result()
    for problem in problems:
        raise problem
    assert verify(path).sound


def acknowledged(writer: Child) -> int:
    lines = writer.lines()
    return int(lines[-1]) if lines else 0
