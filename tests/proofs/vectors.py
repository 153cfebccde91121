"""Writes the vectors: cases from a seeded generator, with the oracle's answers.

    python -m tests.proofs.vectors DIRECTORY

The same seed gives the same files, so `make proofs` can compare them with those in
tests/proofs/vectors, which check the Python code on machines without Coq.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from .oracle import Oracle

DIRECTORY = Path(__file__).parent / "vectors"

PLAIN = ["a", "b", "c", "wallet:w1", "wallet:w2"]

# What has broken separators, encodings and orders elsewhere. The last two are in one order by
# code point and in the other by UTF-16; two before them look alike and are different strings.
NASTY = [
    *(",", "a,b", '"', "'", "{", "}", "=", ":", "/", "\\", "\n", "\t", " ", "_e", "%", "null", "all", "type", "tag"),
    *("A", "aa", "ab", "\x01", "\x7f", "\x80", "ß", "ẞ", "İ", "日本", "👛", "👩‍👩‍👧"),
    *("é", "e\u0301", "\uffff", "\U00010000"),
]

TYPES = ["Opened", "Closed", "Moved"]
IDS = [str(UUID(int=number)) for number in range(1, 9)]


def kernel_cases(random: Random) -> Iterator[dict[str, Any]]:
    yield {"event": _event("Opened", []), "query": [_item([], [])]}
    yield {"event": _event("Opened", NASTY[:3]), "query": [_item([], [])]}
    yield {"event": _event("Opened", ["\uffff", "\U00010000"]), "query": [_item([], ["\U00010000", "\uffff"])]}
    yield {"event": _event("Opened", ["é"]), "query": [_item([], ["e\u0301"])]}
    yield {"event": _event("Opened", ["a", "b"]), "query": [_item([], ["a,b"])]}
    yield {"event": _event("Opened", ["a,b"]), "query": [_item([], ["a", "b"])]}
    yield {"event": _event("Opened", ["x" * 1_024]), "query": [_item([], ["x" * 1_023])]}
    yield {"event": _event("all", ["all"]), "query": [_item(["all"], []), _item([], ["all"])]}
    for _ in range(300):
        alphabet = random.choice([PLAIN, PLAIN, NASTY])
        types = random.choice([TYPES, TYPES, NASTY])
        tags = random.sample(alphabet, random.choice([0, 1, 1, 2, 2, 3, 3, 4, 5]))
        event = _event(random.choice(types), tags)
        query = [_near(random, event, types, alphabet) for _ in range(random.choice([1, 1, 2, 3]))]
        yield {"event": event, "query": query}


def up_to_cases(random: Random) -> Iterator[dict[str, Any]]:
    for _ in range(60):
        tags = random.sample(PLAIN + NASTY, random.choice([0, 1, 2, 3, 5, 8]))
        yield {"up_to": random.choice([0, 1, 2, 3]), "event": _event(random.choice(TYPES), tags)}
    yield {"up_to": 2, "event": _event("Opened", [f"tag:{number}" for number in range(20)])}


def batch_cases(random: Random) -> Iterator[dict[str, Any]]:
    yield {"log": [], "appends": []}
    for _ in range(400):
        alphabet = random.choice([PLAIN, PLAIN, NASTY[:6]])
        ids = random.sample(IDS, random.choice([0, 0, 2, 4]))
        log = [_event(random.choice(TYPES), _tags(random, alphabet), id) for id in ids]
        log += [_event(random.choice(TYPES), _tags(random, alphabet)) for _ in range(random.choice([0, 1, 3, 6]))]
        random.shuffle(log)
        yield {"log": log, "appends": [_append(random, alphabet, len(log)) for _ in range(random.randint(1, 6))]}


def write(directory: Path) -> None:
    """Ask the oracle about every case, and write one file for each kind of question."""
    directory.mkdir(parents=True, exist_ok=True)
    with Oracle() as oracle:
        for kind, cases, ask in (
            ("kernel", kernel_cases, oracle.kernel),
            ("up_to", up_to_cases, oracle.up_to),
            ("batch", batch_cases, oracle.batch),
        ):
            with (directory / f"{kind}.jsonl").open("w", encoding="ascii") as file:
                for case in cases(Random(kind)):
                    file.write(json.dumps({**case, **ask(**case)}, separators=(",", ":")) + "\n")


def _event(type: str, tags: list[str], id: str | None = None) -> dict[str, Any]:
    return {"type": type, "tags": sorted(tags), "id": id}


def _item(types: list[str], tags: list[str]) -> dict[str, Any]:
    return {"types": sorted(types), "tags": sorted(tags)}


def _tags(random: Random, alphabet: list[str]) -> list[str]:
    return random.sample(alphabet, random.choice([0, 1, 1, 2, 3]))


def _near(random: Random, event: dict[str, Any], types: list[str], alphabet: list[str]) -> dict[str, Any]:
    """An item that matches the event, or that one change keeps from matching it."""
    tags = random.sample(event["tags"], random.randint(0, len(event["tags"])))
    named = random.choice([[], [event["type"]], [event["type"], random.choice(types)]])
    match random.choice(["match", "match", "another tag", "another type"]):
        case "another tag":
            tags = list({*tags, random.choice(alphabet)})
        case "another type":
            named = random.sample(types, random.choice([1, 2]))
    return _item(list(set(named)), tags)


def _query(random: Random, alphabet: list[str]) -> list[dict[str, Any]]:
    return [
        _item(random.sample(TYPES, random.choice([0, 0, 1, 2])), random.sample(alphabet, random.choice([0, 1, 1, 2])))
        for _ in range(random.choice([1, 1, 2]))
    ]


def _append(random: Random, alphabet: list[str], length: int) -> dict[str, Any]:
    size = random.choice([0, 1, 1, 1, 2, 3])
    ids = random.sample(IDS, size) if random.random() < 0.3 else [None] * size
    return {
        "events": [_event(random.choice(TYPES), _tags(random, alphabet), id) for id in ids],
        "conditions": [
            {"after": random.choice([0, length, length + 1, random.randint(0, length + 4)]), "query": query}
            for query in (_query(random, alphabet) for _ in range(random.choice([0, 1, 1, 2])))
        ],
        "unless": _query(random, alphabet) if random.random() < 0.15 else None,
        "checkpoint": [random.choice(["p", "q"]), random.randint(0, 4)] if random.random() < 0.3 else None,
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
