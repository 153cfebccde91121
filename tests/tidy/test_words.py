"""Prose names the actor and says "no", "not" and "None" plainly, so that it is understood on first reading.

Each rule is a phrase that hides the actor ("nobody waits": which thread, caller or process?) or that a reader has to
decode ("is none", "so many"). The rules apply to everything that a user or a maintainer reads: modules, SQL, pages.
"""

from __future__ import annotations

import re

import pytest

from .sources import ROOT, SOURCE, broken

COMPARED = "longer|more|later|earlier|better|worse|faster|slower|larger|smaller|wider"
# Each phrase, and what to write instead.
RULES = {
    r"(?:[Nn]o|[Ss]ome|[Aa]ny|[Ee]very)body": "name the thread, task, caller, process or person",
    r"[Ww]ho(?:ever|m)": "name the thread, task, caller, process or person",
    r"(?:for|those|one|ones) who": "name the thread, task, caller, process or person",
    r"(?<=[:;.] )[Ww]ho": "name the thread, task, caller, process or person",
    r"(?:of|by|from|than|for) others": "say which other threads, callers, processes or events",
    r"(?<![Tt]here )(?:is|are|was|were) none": 'say "is not ..." or "has no ..."',
    rf"(?<![Tt]here )(?:is|are|was|were) no (?!{COMPARED})\w+": 'say "is not a ..."',
    r"so (?:many|much|long)(?! (?:\w+ )?(?:as|that)\b)": "say how many, how much or how long, or name the parameter",
    r"(?:is|are) to be": 'say "must be", "will be" or "can be"',
    r"(?:be|is|are) had": 'say "is available"',
    r"go(?:es)? home": "say what the thread or task does",
    r"no harm": 'say "is harmless", "is idempotent" or "has no effect"',
    r"all the same": 'say "nevertheless" or "even so"',
    r"in question": "name it",
}
# The tests whose prose the rules apply to.
TESTS = ("contract", "crash", "decisions", "foundationdb", "races", "sqlite", "torture", "unit")
# A phrase may be broken over two lines; in the text that is searched, a line ends with this character.
BREAK = "\x01"
PATTERNS = {
    re.compile(r"(?<!\w)" + phrase.replace(" ", f"[ {BREAK}]") + r"(?!\w)"): advice for phrase, advice in RULES.items()
}


def files() -> list[str]:
    """Everything that a user or a maintainer reads, as a path below the repository."""
    found = [
        *SOURCE.rglob("*.py"),
        *SOURCE.rglob("*.sql"),
        *(path for folder in TESTS for path in (ROOT / "tests" / folder).rglob("*.py")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "proofs/README.md", "models/README.md")),
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def findings(text: str) -> list[str]:
    """Each phrase that a rule forbids, with its line and what to write instead."""
    lines = re.sub(r"\n[ \t]*(?:#|--|>)?[ \t]*", BREAK, text)
    return [
        f"line {lines.count(BREAK, 0, match.start()) + 1}: {match[0].replace(BREAK, ' ')!r}: {advice}"
        for pattern, advice in PATTERNS.items()
        for match in pattern.finditer(lines)
    ]


def test_prose_is_plain() -> None:
    assert broken(lambda name: findings((ROOT / name).read_text()), files()) == {}


@pytest.mark.parametrize(
    "text",
    [
        "it waits until nobody reads",
        "Nobody has made a store yet",
        "what should be a number is none",
        "this is no Fencepost store",
        "the next so many events",
        "on most of them at most: who comes meanwhile waits",
        "those\n    # who wait",
        "an event that is\n# to be stored",
        "look for those of others",
    ],
)
def test_the_rules_find_what_they_forbid(text: str) -> None:
    assert findings(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 when there is none",
        "there is no leader",
        "the leader is no longer alive",
        "so long as the file is open",
        "so many tags that it is slow",
        "a caller who may append",
        "if value is None:",
        "some record and others do not",
    ],
)
def test_the_rules_allow(text: str) -> None:
    assert findings(text) == []
