"""The names that the engine uses, and that the simulator has, are those of the installed binding.

The binding cannot be imported without FoundationDB's client library, so its source is read instead.
"""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import distribution
from pathlib import Path

import fdb.fdboptions as options
import pytest
from tests.support.simulated_fdb import FDBError, KeySelector, Transaction
from tests.support.simulated_fdb import errors as codes
from tests.support.simulated_fdb.api import Options, StreamingMode
from tests.support.simulated_fdb.futures import Future

from fencepost.engines.foundationdb import binding, engine, tries

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


def test_a_range_read_of_the_binding_begins_at_once_and_keeps_its_first_reply() -> None:
    [init] = [
        node for node in CLASSES["FDBRange"].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert [argument.arg for argument in init.args.args] == [
        *("self", "tr", "begin", "end", "limit", "reverse", "streaming_mode")
    ]
    assert any("self._future = self._tr._get_range(" in ast.unparse(node) for node in init.body)
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
    assert tries.TIMED_OUT == codes.TRANSACTION_TIMED_OUT
    assert tries.NOT_COMMITTED == codes.NOT_COMMITTED
    assert tries.THROTTLED == codes.THROTTLED
    assert engine.TOO_MANY_WATCHES == codes.TOO_MANY_WATCHES
    assert str(FDBError(1020)) == "Transaction not committed due to conflict with another transaction (1020)"
