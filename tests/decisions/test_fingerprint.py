"""The fingerprint of a projection class changes with everything that could change its state, and with nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost.decisions import DefinitionError, Projection, Tag, event, on
from fencepost.decisions.inspection import fingerprint, json_codec, msgpack_codec

from .wallets import DepositMade

# Source texts, because a class must be compared with an earlier version of itself.
NAMES = """
import functools, re
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import ClassVar
from pydantic import BaseModel
from fencepost.decisions import Projection, Tag, event, on
from fencepost.decisions.inspection import fingerprint

@dataclass
class Point:
    x: int

def passed_on(method):
    @functools.wraps(method)
    def passing(*args):
        return method(*args)
    return passing
"""

PROJECTION = (
    NAMES
    + """
@event
class Paid:
    wallet_id: Tag

class Total(Projection):
    wallet_id: Tag
    {}

    @on
    def _(self, event: Paid) -> None: ...
"""
)

EVENT = (
    NAMES
    + """
@event
{}
    wallet_id: Tag
    amount: int = {}
    def rate(self): return {}

class Total(Projection):
    wallet_id: Tag

    @on
    def _(self, event: Paid) -> None: ...
"""
)

EVERYTHING = """
    amounts: frozenset[str] = frozenset({'a', 'b', 'c', 'd'})
    made: list[str] = field(default_factory=lambda: list({'a', 'b', 'c', 'd'}))
    NAMES: ClassVar[set[str]] = {'a', 'b', 'c', 'd'}
    POINTS: ClassVar[list[Point]] = [Point(1)]
    PATTERN: ClassVar[object] = re.compile('a')
    OTHER: ClassVar[object] = object()
    def known(self, name): return name in {'a', 'b', 'c', 'd'}
"""


def defined(source: str) -> Any:
    """The projection of the source."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "defined", "exec", dont_inherit=True), names)
    return names["Total"]


# A module with everything that a handler may refer to.
MODULE = """
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from zoneinfo import ZoneInfo
import helpers
from fencepost.decisions import Projection, Tag, event, on
from fencepost.decisions.inspection import fingerprint

RATE = 2
RATES = {"a": Decimal("1.5")}
ZONE = ZoneInfo("Europe/Berlin")

class Kind(Enum):
    BIG = 1
    def twice(self): return self.value * 2

@dataclass
class Policy:
    factor: int = 3
    def apply(self, amount): return amount * self.factor

class Plain:
    def __init__(self): self.fee = 4

policy, plain = Policy(), Plain()

def inner(amount): return amount + 1

def helper(amount, *, bonus=5):
    "A docstring."
    return inner(amount) + bonus  # a comment

@cache
def remembered(amount): return amount * 6

halved = partial(pow, 2, mod=7)

@contextmanager
def noted(): yield 16

def closed(number):
    def close(amount): return amount * number
    return close

eight = closed(8)

@event
class Paid:
    wallet_id: Tag
    amount: int
    def net(self): return helper(self.amount)

class Total(Projection):
    wallet_id: Tag
    amount: int = 0
    made: list[int] = field(default_factory=lambda: [9])
    policy: Policy | None = None

    @property
    def double(self): return self.amount * 10

    @on
    def _(self, event: Paid) -> None:
        from late import imported
        def nested(): return remembered(11)
        self.amount += event.net() * RATE + nested() + eight(1) + halved(3) + policy.apply(1) + plain.fee
        with noted() as number: self.amount += number
        self.amount += helpers.rate(event.amount) + len(RATES) + Kind.BIG.twice() + imported() + hash(ZONE)

if __name__ == "__main__":
    print(fingerprint(Total).hex())
"""

HELPERS = """
def rate(amount): return deeper(amount) * 12
def deeper(amount): return amount
def unused(): return 13
"""

LATE = """
def imported(): return 14
"""

CHANGES = [
    ("RATE = 2", "RATE = 3"),
    ('"a": Decimal("1.5")', '"a": Decimal("1.6")'),
    ('ZoneInfo("Europe/Berlin")', 'ZoneInfo("Europe/Paris")'),
    ("BIG = 1", "BIG = 2"),
    ("self.value * 2", "self.value * 3"),
    ("factor: int = 3", "factor: int = 4"),
    ("amount * self.factor", "amount / self.factor"),
    ("Policy(), Plain()", "Policy(7), Plain()"),
    ("self.fee = 4", "self.fee = 5"),
    ("return amount + 1", "return amount - 1"),
    ("bonus=5", "bonus=6"),
    ("return amount * 6", "return amount * 7"),
    ("mod=7", "mod=9"),
    ("yield 16", "yield 17"),
    ("return amount * number", "return amount + number"),
    ("closed(8)", "closed(9)"),
    ("helper(self.amount)", "helper(self.amount) + 1"),
    ("amount: int = 0", "amount: int = 1"),
    ("lambda: [9]", "lambda: [8]"),
    ("self.amount * 10", "self.amount * 11"),
    ("remembered(11)", "remembered(12)"),
    ("amount: int\n    def net", "amount: float\n    def net"),
    ("deeper(amount) * 12", "deeper(amount) * 13"),
    ("def deeper(amount): return amount", "def deeper(amount): return -amount"),
    ("return 14", "return 15"),
]

SAME = [
    ("# a comment", "# another comment"),
    ('"A docstring."', '"Another docstring."'),
    ("def helper(amount, *,", "def helper(amount: int, *,"),
    ("\nRATE = 2", "\n\n\nRATE = 1 + 1"),
    ("return 13", "return 14"),
    ("return inner(amount) + bonus", "return (inner(amount)\n        + bonus)"),
]

_folders = count()


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The fingerprint of `Total` in MODULE after a change, imported under a name."""

    def load(name: str, file: Path) -> Any:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    def printed(before: str = "", after: str = "", name: str = "wallet") -> str:
        folder = tmp_path / str(next(_folders))
        folder.mkdir()
        for file, source in (("helpers", HELPERS), ("late", LATE), (name, MODULE)):
            (folder / f"{file}.py").write_text(source.replace(before, after) if before else source)
            module = load(file, folder / f"{file}.py")
        return fingerprint(module.Total).hex()

    return printed


class TestOfModules:
    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1].partition("\n")[0])
    def test_changes_with_what_its_code_refers_to(self, printed: Callable[..., str], change: tuple[str, str]) -> None:
        assert any(change[0] in source for source in (MODULE, HELPERS, LATE))
        assert printed(*change) != printed()

    @pytest.mark.parametrize("change", SAME, ids=lambda change: change[1].strip().partition("\n")[0])
    def test_stays_the_same_after_what_changes_no_result(
        self, printed: Callable[..., str], change: tuple[str, str]
    ) -> None:
        assert printed(*change) == printed()

    def test_is_the_same_under_another_name_of_the_module(self, printed: Callable[..., str]) -> None:
        assert printed(name="wallet") == printed(name="another")

    def test_is_the_same_in_a_program_and_in_every_process(self, printed: Callable[..., str], tmp_path: Path) -> None:
        expected = printed()
        (tmp_path / "helpers.py").write_text(HELPERS)
        (tmp_path / "late.py").write_text(LATE)
        (tmp_path / "program.py").write_text(MODULE)
        for seed in ("1", "2"):
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            run = subprocess.run(
                [sys.executable, "program.py"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                check=True,
                text=True,
            )
            assert run.stdout.strip() == expected

    def test_is_the_same_in_another_version_of_python(
        self, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bytecode, which differs between versions, does not count where there is source text."""
        before = printed()

        def refuse(code: object) -> str:
            raise AssertionError("the fingerprint depends on bytecode")

        monkeypatch.setattr("fencepost.decisions.fingerprint._bytecode", refuse)
        assert printed() == before

    def test_counts_what_was_imported_and_not_what_the_file_says_since(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A deployment may replace the files of a running process."""
        monkeypatch.syspath_prepend(tmp_path)
        file = tmp_path / "replaced_wallet.py"
        source = PROJECTION.format("def rate(self): return 2")
        file.write_text(source)
        module = importlib.import_module("replaced_wallet")
        file.write_text(source.replace("return 2", "return 3"))
        running = fingerprint(module.Total)
        monkeypatch.delitem(sys.modules, "replaced_wallet")
        assert fingerprint(importlib.import_module("replaced_wallet").Total) != running


class TestOfClosures:
    def test_changes_with_a_closed_over_value(self) -> None:
        def made(rate: Any) -> type[Projection]:
            class Total(Projection):
                wallet_id: Tag
                amount: int = 0

                @on
                def _(self, event: DepositMade) -> None:
                    self.amount += event.amount * (rate() if callable(rate) else rate)

            return Total

        assert fingerprint(made(5)) == fingerprint(made(5)) != fingerprint(made(50))
        one, two = (lambda: 1), (lambda: 2)
        assert fingerprint(made(one)) == fingerprint(made(one)) != fingerprint(made(two))


class Nested:
    inner: Any = None


class TestOfGlobalValues:
    def made(self, value: Any, **options: Any) -> bytes:
        class Total(Projection, **options):
            wallet_id: Tag
            amount: int = 0

            @on
            def _(self, event: DepositMade) -> None:
                self.amount += bool(value)

        return fingerprint(Total)

    def test_an_object_of_an_installed_package_counts_by_its_class(self) -> None:
        """A metric or a connection changes while a program runs."""
        one, two = pa.array([1]), pa.array([2])
        assert self.made(one) == self.made(two) != self.made(pa.table({"a": one}))

    def test_an_object_that_cannot_be_pickled_counts_by_its_class(self) -> None:
        assert self.made(threading.Lock()) == self.made(threading.Lock()) != self.made(threading.Event())

    def test_values_that_are_nested_too_deeply_are_refused_unless_there_is_a_version(self) -> None:
        outer = Nested()
        for _ in range(5_000):
            nested = Nested()
            nested.inner, outer = outer, nested
        with pytest.raises(DefinitionError, match=r"nested too deeply .* version="):
            self.made(outer)
        assert self.made(outer, version=1)


class TestWithAVersion:
    def made(self, factor: int, **options: Any) -> bytes:
        class Total(Projection, **options):
            wallet_id: Tag
            amount: int = 0

            @on
            def _(self, event: DepositMade) -> None:
                self.amount += event.amount * factor

        return fingerprint(Total)

    def test_the_version_decides_and_not_the_code(self) -> None:
        assert self.made(1, version="3") == self.made(2, version="3") == self.made(1, version=3)
        assert self.made(1, version="3") != self.made(1, version="4")
        assert self.made(1, version="3") != self.made(1)

    def test_other_fields_make_another_fingerprint_under_the_same_version(self) -> None:
        def made(kind: Any) -> bytes:
            class Total(Projection, version=1):
                wallet_id: Tag
                amount: kind = 0

                @on
                def _(self, event: DepositMade) -> None: ...

            return fingerprint(Total)

        assert made(int) == made(int) != made(float)


class TestOfClasses:
    def test_of_another_definition_is_not_found(self) -> None:
        def made(**options: Any) -> type[Projection]:
            class Count(Projection, **options):
                wallet_id: Tag
                amount: int = 0

                @on
                def _(self, event: DepositMade) -> None:
                    self.amount += event.amount

            return Count

        def changed_handler() -> type[Projection]:
            class Count(Projection):
                wallet_id: Tag
                amount: int = 0

                @on
                def _(self, event: DepositMade) -> None:
                    self.amount += event.amount * 2

            Count.definition.name = made().definition.name
            return Count

        def changed_start() -> type[Projection]:
            class Count(Projection):
                wallet_id: Tag
                amount: int = 1

                @on
                def _(self, event: DepositMade) -> None:
                    self.amount += event.amount

            Count.definition.name = made().definition.name
            return Count

        same = fingerprint(made())
        assert fingerprint(made()) == same
        assert fingerprint(made(snapshot_every=5)) == same
        for other in (made(version=2), changed_handler(), changed_start()):
            assert fingerprint(other) != same

    @pytest.mark.parametrize(
        "change",
        [
            ("RATE: ClassVar[int] = 2", "RATE: ClassVar[int] = 3"),
            ("NAMES: ClassVar[list[str]] = ['a']", "NAMES: ClassVar[list[str]] = ['b']"),
            ("START: ClassVar[Point] = Point(1)", "START: ClassVar[Point] = Point(2)"),
            ("@property\n    def rate(self): return 2", "@property\n    def rate(self): return 3"),
            ("@cached_property\n    def rate(self): return 2", "@cached_property\n    def rate(self): return 3"),
            ("@staticmethod\n    def rate(): return 2", "@staticmethod\n    def rate(): return 3"),
            ("@classmethod\n    def rate(cls): return 2", "@classmethod\n    def rate(cls): return 3"),
            ("@passed_on\n    def rate(self): return 2", "@passed_on\n    def rate(self): return 3"),
            ("class Rate(Enum):\n        LOW = 2", "class Rate(Enum):\n        LOW = 3"),
            (
                "amounts: list = field(default_factory=lambda: [2])",
                "amounts: list = field(default_factory=lambda: [3])",
            ),
        ],
        ids=lambda change: change[0].partition("\n")[0],
    )
    def test_of_a_class_with_something_else_in_it_is_not_found(self, change: tuple[str, str]) -> None:
        first, second = (fingerprint(defined(PROJECTION.format(each))) for each in change)
        assert first != second
        assert fingerprint(defined(PROJECTION.format(change[0]))) == first

    @pytest.mark.parametrize(
        "head", ["class Paid:", "@dataclass(frozen=True)\nclass Paid:", "class Paid(BaseModel):"], ids=lambda head: head
    )
    def test_of_events_with_another_default_or_behaviour_is_not_found(self, head: str) -> None:
        """A field that was added later is its default in the events from before."""

        def made(default: int, rate: int) -> bytes:
            return fingerprint(defined(EVENT.format(head, default, rate)))

        assert made(1, 1) == made(1, 1)
        assert len({made(1, 1), made(2, 1), made(1, 2)}) == 3

    def test_of_events_that_are_read_by_another_codec_is_not_found(self) -> None:
        def made(codec: Any) -> bytes:
            @event(codec=codec)
            class Paid:
                wallet_id: Tag

            class Total(Projection):
                wallet_id: Tag

                @on
                def _(self, event: Paid) -> None: ...

            return fingerprint(Total)

        assert made(json_codec) == made(json_codec) != made(msgpack_codec)

    def test_is_told_by_the_same_key_in_every_process(self) -> None:
        """The key contains no memory address and does not depend on the order of hashes."""
        source = PROJECTION.format(EVERYTHING) + "print(fingerprint(Total).hex())"
        prints = set()
        for seed in ("1", "2", "3"):
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            run = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=True)
            prints.add(run.stdout)
        assert len(prints) == 1
