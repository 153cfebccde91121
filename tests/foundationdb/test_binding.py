"""The names that the engine uses, and that the simulator has, are those of the installed binding.

The binding cannot be imported without FoundationDB's client library, so its source is read instead.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import sys
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fdb.fdboptions as options
import pytest
from tests.support.simulated_fdb import FDBError, KeySelector, Transaction
from tests.support.simulated_fdb import errors as codes
from tests.support.simulated_fdb.api import Options, StreamingMode
from tests.support.simulated_fdb.futures import Future

from fencepost.engines.foundationdb import binding, transactions

SOURCE = Path(str(distribution("foundationdb").locate_file("fdb/impl.py")))
CLASSES = {node.name: node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.ClassDef)}
GENERATED = {f"{prefix}{name.lower()}" for name in options.MutationType for prefix in ("", "bit_")}


def methods(*names: str) -> dict[str, list[str]]:
    """The methods of the binding's classes, with the names of their parameters."""
    found = {name: ["self", "key", "param"] for name in GENERATED}
    for class_ in reversed(names):
        for node in CLASSES[class_].body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = [argument.arg for argument in node.args.args]
    return found


def public(cls: type) -> list[str]:
    return [name for name, value in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("protocol", "classes"),
    [
        (binding.Transaction, ("Transaction", "TransactionRead")),
        (binding.Reads, ("TransactionRead",)),
        (binding.Future, ("FutureVoid", "Future")),
    ],
)
def test_what_the_engine_calls_is_there_in_the_same_order(protocol: type, classes: tuple[str, ...]) -> None:
    there = methods(*classes)
    for name in public(protocol):
        expected = list(inspect.signature(getattr(protocol, name)).parameters)
        assert len(there[name]) == len(expected), name


class RecordingLibrary:
    """Stands for FoundationDB's client library: writes down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> int:
            self.calls.append((name, *arguments))
            return 7

        setattr(self, name, call)  # the binding sets attributes of the function
        return call

    def taken(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return [call for call in calls if "destroy" not in str(call[0])]


@pytest.fixture
def impl(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The binding's own module over such a library."""
    library = RecordingLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: library)
    spec = spec_from_file_location("fdb.impl_for_tests", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    module._FDBBase.capi = library
    return module


def test_writing_directly_makes_the_calls_that_the_methods_of_the_binding_make(impl: Any) -> None:
    transaction = impl.Transaction(3, None)
    writes = binding.Writes(
        read_conflicts=[b"r", b"rr"],
        stamped_keys=[(b"k" * 20, b"1"), (b"l" * 20, b"")],
        stamped_values=[(b"v", b"2" * 20)],
        sets=[(b"s", b"3")],
        clears=[b"c"],
        write_conflicts=[b"w", b"ww"],
    )
    library = transaction.capi
    library.taken()
    binding.simple_write(transaction, writes)
    expected = library.taken()
    binding.write_directly(transaction, writes)
    assert library.taken() == expected
    assert len(expected) == 9


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_read_makes_the_call_that_the_binding_makes(
    impl: Any, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    monkeypatch.setattr(binding, "importlib", SimpleNamespace(import_module=lambda name: impl))
    transaction = impl.Transaction(3, None)
    library = transaction.capi
    library.taken()
    begin, end = map(impl.KeySelector.first_greater_or_equal, (b"a", b"bb"))
    own = impl.FDBRange(transaction.snapshot, begin, end, 5, reverse, binding.WANT_ALL)
    expected = library.taken()
    future = binding.ranges_of(impl)(transaction.snapshot, b"a", b"bb", 5, reverse)
    assert library.taken() == expected
    assert type(future) is type(own._future)
    reply = ast.unparse(CLASSES["FutureKeyValueArray"])
    assert "count.value, more.value" in reply, "rows, their number, and whether there are more"


def test_the_simulated_transaction_takes_the_bindings_parameters() -> None:
    there = methods("Transaction", "TransactionRead")
    for name in public(Transaction):
        expected = list(inspect.signature(getattr(Transaction, name)).parameters)
        assert name in there, name
        if name not in ("get_key", "get_range_startswith"):  # one takes its selector by place, one passes arguments on
            assert len(there[name]) == len(expected), name
    assert list(inspect.signature(Transaction.get_range).parameters) == there["get_range"]


def test_futures_selectors_and_options_are_the_bindings() -> None:
    assert set(public(Future)) - {"resolve"} <= methods("Future", "FutureVoid").keys()
    selectors = methods("KeySelector")
    assert {name for name in vars(KeySelector) if name.startswith(("first", "last"))} <= selectors.keys()
    settings = {f"set_{name.lower()}" for name in options.TransactionOption}
    assert set(public(Options)) <= settings
    assert StreamingMode.want_all == binding.WANT_ALL == options.StreamingMode["want_all"][0]


def test_what_the_engine_knows_of_errors_is_what_the_simulator_raises() -> None:
    assert transactions.TIMED_OUT == codes.TRANSACTION_TIMED_OUT
    assert transactions.NOT_COMMITTED == codes.NOT_COMMITTED
    assert transactions.THROTTLED == codes.THROTTLED
    assert transactions.TOO_OLD == codes.TOO_OLD
    assert str(FDBError(1020)) == "b'Transaction not committed due to conflict with another transaction' (1020)"


def test_the_text_of_an_error_shows_no_bytes() -> None:
    text = "Transaction not committed due to conflict with another transaction (1020)"
    assert binding.text_of(FDBError(1020)) == text
