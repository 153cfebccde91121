"""An address says what kind of store it names, where that is, and how to open it."""

from __future__ import annotations

import pickle
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path

import pytest

import fencepost
from fencepost import InvalidInput
from fencepost.core.address import FOUNDATIONDB, KINDS, MEMORY, POSTGRES, SQLITE, Address, Kind, open_engine
from fencepost.core.options import MemoryOptions, PostgresOptions, SqliteOptions
from fencepost.engines.memory import MemoryEngine
from fencepost.engines.postgres import PostgresEngine
from fencepost.engines.sqlite.engine import SqliteEngine
from fencepost.server.remote import REMOTE
from fencepost.spark.lake_kind import LAKE


@pytest.mark.parametrize(
    ("text", "kind", "location"),
    [
        ("wallet.db", SQLITE, "wallet.db"),
        ("/data/wallet", SQLITE, "/data/wallet"),
        ("sqlite:wallet.db", SQLITE, "wallet.db"),
        ("sqlite:memory:", SQLITE, "memory:"),
        ("./lake:x", SQLITE, "./lake:x"),
        ("why?.db", SQLITE, "why?.db"),
        ("wallet.db?mode=ro", SQLITE, "wallet.db"),
        ("memory:", MEMORY, ""),
        ("postgresql://ada@db/wallet", POSTGRES, "postgresql://ada@db/wallet"),
        ("postgres://db/w?schema=eu&sslmode=require", POSTGRES, "postgres://db/w?sslmode=require"),
        ("fdb:", FOUNDATIONDB, ""),
        ("fdb:/etc/fdb.cluster?namespace=eu", FOUNDATIONDB, "/etc/fdb.cluster"),
        ("lake:/data/lake", LAKE, "/data/lake"),
        ("http://127.0.0.1:8765", REMOTE, "http://127.0.0.1:8765"),
    ],
)
def test_an_address_names_a_kind_and_a_place(text: str, kind: Kind, location: str) -> None:
    address = Address.parse(text)
    assert address.kind is kind
    assert address.location == location
    assert address.text == text


def test_a_path_object_is_a_file_whatever_its_name_is() -> None:
    address = Address.parse(Path("lake:x?mode=ro"))
    assert (address.kind, address.path, address.read_only) == (SQLITE, "lake:x?mode=ro", False)


def test_an_address_is_parsed_once() -> None:
    address = Address.parse("postgresql://db/w?schema=eu")
    assert Address.parse(address) is address


@pytest.mark.parametrize("text", ["mysql://db/wallet", "s3:bucket", "memory:x", "postgresql:wallet", "lak:x"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidInput, match="address") as refused:
        Address.parse(text)
    assert text == "postgresql:wallet" or all(kind.form in str(refused.value) for kind in KINDS)


def test_a_file_whose_name_looks_like_a_scheme_is_opened_if_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with fencepost.open("./v1:wallet") as made:
        made.append([fencepost.Event("A")])
    with fencepost.open("v1:wallet") as found:
        assert found.head() == 1


def test_a_lake_that_does_not_exist_is_not_made_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fencepost.FencepostError, match="lake"):
        fencepost.open("lake:x")
    assert list(tmp_path.iterdir()) == []


def test_options_in_an_address_are_parsed_and_options_of_the_call_take_precedence() -> None:
    address = Address.parse("postgresql://db/w?schema=eu&connections=3&patience_s=0.5&create=true")
    assert address.options == {"schema": "eu", "connections": 3, "patience_s": 0.5, "create": True}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("postgresql://db/w?connections=many", "connections"),
        ("fdb:?name=eu", "address"),
        ("wallet.db?mode=rw", "address"),
        ("?mode=ro", "address"),
        ("", "address"),
        ("sqlite:", "address"),
        (":memory:", "address"),
        ("a\udcff.db", "address"),
    ],
)
def test_a_malformed_address_is_refused_by_the_name_of_what_is_wrong(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Address.parse(text)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "absolute"),
    [
        ("wallet.db", "{here}/wallet.db"),
        ("sqlite:wallet.db?mode=ro", "{here}/wallet.db?mode=ro"),
        ("lake:a/b", "lake:{here}/a/b"),
        ("/data/wallet.db?mode=ro", "/data/wallet.db?mode=ro"),
        ("postgresql://db/w", "postgresql://db/w"),
    ],
)
def test_an_absolute_address_means_the_same_store_elsewhere(
    text: str, absolute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = Address.parse(text).absolute()
    assert address.text == absolute.format(here=tmp_path)
    assert Address.parse(address.text).location == address.location


def test_an_address_is_printed_without_its_secret() -> None:
    address = Address.parse("postgresql://ada:hunter2@db/w?schema=eu")
    assert str(address) == "postgresql://ada:***@db/w?schema=eu"
    assert "hunter2" not in repr(address)
    assert address.has_secret


def test_foundationdb_has_gaps_and_wide_positions_and_a_server_may_have_them() -> None:
    assert {kind for kind in (*KINDS, LAKE, REMOTE) if kind.has_gaps} == {FOUNDATIONDB, REMOTE}
    assert {kind for kind in (*KINDS, LAKE, REMOTE) if kind.has_wide_positions} == {FOUNDATIONDB, REMOTE}


@pytest.mark.parametrize("kind", [*KINDS, LAKE, REMOTE], ids=lambda kind: kind.name)
def test_the_function_that_opens_a_kind_exists(kind: Kind) -> None:
    module, _, function = kind.opener.partition(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("scheme", [*LAKE.schemes, *REMOTE.schemes])
def test_an_entry_point_names_each_kind_that_is_not_listed(scheme: str) -> None:
    (entry,) = entry_points(group="fencepost.engines", name=scheme)
    assert scheme in entry.load().schemes


@pytest.mark.parametrize("text", ["wallet.db?mode=ro", "postgresql://db/w?create=true", "fdb:", "memory:", "lake:x"])
def test_an_address_crosses_processes(text: str) -> None:
    address = Address.parse(text)
    copy = pickle.loads(pickle.dumps(address))
    assert copy.kind is address.kind
    assert copy == address


@pytest.mark.parametrize("address", ["memory:", "store.db", "postgresql://host/db", "fdb:", "lake:folder"])
def test_an_unknown_option_is_refused_with_those_that_exist(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"does not have this option; it(s options are | has no options)") as refused:
        open_engine(address, patience=3)
    assert refused.value.field == "patience"


@pytest.mark.parametrize("patience_s", [float("inf"), float("nan"), -1, 10**400, "3", True, None])
def test_a_patience_that_no_engine_can_have_is_refused_by_name(patience_s: object, tmp_path: Path) -> None:
    for address in (str(tmp_path / "store.db"), "postgresql://host/db", "http://127.0.0.1:1"):
        with pytest.raises(InvalidInput, match="patience_s: seconds from 0 to 86,400 are needed"):
            open_engine(address, patience_s=patience_s)
    assert not (tmp_path / "store.db").exists()


def test_the_patience_in_an_address_is_checked_as_well() -> None:
    with pytest.raises(InvalidInput, match="patience_s: seconds from 0 to 86,400 are needed, not inf"):
        open_engine("postgresql://host/db?patience_s=inf")


@pytest.mark.parametrize(
    ("options", "engine"),
    [(MemoryOptions, MemoryEngine), (SqliteOptions, SqliteEngine), (PostgresOptions, PostgresEngine)],
)
def test_an_engine_takes_exactly_the_options_that_open_names(options: type, engine: type) -> None:
    parameters = signature(engine).parameters.values()
    assert options.__annotations__.keys() == {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def test_a_url_after_the_scheme_of_a_file_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidInput, match="a path follows sqlite:, not a URL") as refused:
        Address.parse("sqlite:postgresql://u:secret@h/db")
    assert "secret" not in str(refused.value)
