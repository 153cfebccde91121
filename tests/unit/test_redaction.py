"""An address is shown without its secrets, however it is written."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import InvalidInput
from fencepost.core.address import Address
from fencepost.core.redaction import has_secret, redacted, scrubbed

SECRET = "hunter2"

SHOWN = [
    ("postgresql://ada:hunter2@db/wallet?schema=eu", "postgresql://ada:***@db/wallet?schema=eu"),
    ("postgresql://ada:hunter2@[::1]:5432/wallet", "postgresql://ada:***@[::1]:5432/wallet"),
    ("postgresql://ada:hunter2@a:1,b:2/wallet", "postgresql://ada:***@a:1,b:2/wallet"),
    ("postgresql://ada:a#hunter2@db/wallet", "postgresql://ada:***@db/wallet"),
    ("postgresql://ada:a?hunter2@db/wallet", "postgresql://ada:***@db/wallet"),
    ("postgresql://ada:a:hunter2@db/wallet", "postgresql://ada:***@db/wallet"),
    ("postgresql://ada:%68unter2@db/wallet", "postgresql://ada:***@db/wallet"),
    ("postgresql://ada:a@hunter2@db/wallet", "postgresql://***"),
    ("postgresql://ada:12/hunter2@db/wallet", "postgresql://***"),
    ("postgresql://ada:hunter2%40db/wallet", "postgresql://***"),
    ("postgresql://ada%3Ahunter2@db/wallet", "postgresql://***"),
    ("postgresql://ada:hunter2", "postgresql://***"),
    ("postgresql://db:5432?password=a@hunter2", "postgresql://***"),
    ("postgresql://[hunter2", "postgresql://***"),
    ("postgresql://ada@db/wallet?password=hunter2", "postgresql://ada@db/wallet?password=***"),
    ("postgresql://ada@db/wallet?password=a&user=hunter2", "postgresql://ada@db/wallet?password=***"),
    (
        "postgresql://ada@db/wallet?schema=eu&sslpassword=hunter2",
        "postgresql://ada@db/wallet?schema=eu&sslpassword=***",
    ),
    ("postgresql://ada@db/wallet?p%61ssword=hunter2", "postgresql://ada@db/wallet?***"),
    ("postgresql://ada@db/wallet?hunter2", "postgresql://ada@db/wallet?***"),
    ("host=db user=ada password=hunter2 dbname=wallet", "host=db user=ada password=***"),
    ("host=db password = 'a \\' hunter2'", "host=db password =***"),
    ("postgresql:ada:hunter2@db/wallet", "postgresql:***"),
    ("postgresql:/ada:hunter2@db/wallet", "postgresql:***"),
    ("postgres//ada:hunter2@db/wallet", "***"),
    ("//ada:hunter2@db/wallet", "***"),
    ("ada:hunter2@db/wallet", "ada:***"),
    ("fdb:description:hunter2@127.0.0.1:4500", "fdb:***"),
    ("fdb:?password=hunter2", "fdb:?password=***"),
    ("https://hunter2@example.com/store", "https://***@example.com/store"),
    ("https://ada:hunter2@example.com/store", "https://***@example.com/store"),
    ("https://example.com/store?token=hunter2&x=1", "https://example.com/store?token=***"),
    ("https://example.com/store?key=hunter2", "https://example.com/store?***"),
]

HARMLESS = [
    "wallet.db",
    "data/wallet 2.db",
    "/data/ada:b@c.db",
    "./ada:b@c.db",
    "sqlite:password=1.db",
    "memory:",
    "lake:/data/lake",
    "fdb:/etc/fdb.cluster?namespace=eu",
    "postgresql://ada@db/wallet",
    "postgresql://%2Ftmp%2Fpg/wallet",
    "postgresql:///wallet?host=/tmp/pg&user=ada&passfile=/run/secrets/pgpass",
    "postgresql://db/wallet?options=-csearch_path%3Deu",
]


@pytest.mark.parametrize(("address", "shown"), SHOWN)
def test_an_address_is_shown_without_its_secret(address: str, shown: str) -> None:
    assert redacted(address) == shown
    assert has_secret(address)


@pytest.mark.parametrize("address", HARMLESS)
def test_an_address_without_a_secret_is_shown_as_it_is(address: str) -> None:
    assert redacted(address) == address
    assert not has_secret(address)


def test_a_path_object_means_a_file() -> None:
    assert redacted(Path("ada:b@c.db")) == "ada:b@c.db"
    assert Address.parse(Path("ada:b@c.db")).path == "ada:b@c.db"


NASTY = st.text(st.sampled_from("@:/?#&=%+,;[] '\"\\az19\n\0\ud800é"), max_size=12)
PASSWORDS = st.builds(lambda before, after: f"{before}{SECRET}{after}", NASTY, NASTY)
SCHEMES = st.sampled_from(["postgresql://", "postgres://", "https://", "postgresql:", "postgresql:/", "//", ""])
PLACES = st.sampled_from(["db", "db:5432", "[::1]:5432", "a:1,b", "", "%2Ftmp%2Fpg"])
ENDS = st.sampled_from(["", "/wallet", "/wallet?schema=eu", "?schema=eu", "/wallet?user=a%40b&x"])
FORMS = st.sampled_from([str, lambda text: quote(text, safe="", errors="replace")])


@given(SCHEMES, PASSWORDS, PLACES, ENDS, FORMS)
def test_no_password_before_the_host_is_ever_shown(scheme, password, place, end, form) -> None:  # type: ignore[no-untyped-def]
    shown = redacted(f"{scheme}ada:{form(password)}@{place}{end}")
    assert SECRET not in shown
    assert SECRET not in unquote(shown)


@given(
    st.sampled_from(["postgresql://ada@db/wallet?", "postgresql://db?", "https://example.com/x?a=1&", "fdb:?", ""]),
    st.sampled_from(["password", "sslpassword", "PASSWORD", "token", "client_secret"]),
    PASSWORDS,
    st.sampled_from(["", "&schema=eu", " dbname=wallet"]),
    FORMS,
)
def test_no_password_in_a_parameter_is_ever_shown(start, name, password, end, form) -> None:  # type: ignore[no-untyped-def]
    shown = redacted(f"{start}{name}={form(password)}{end}")
    assert SECRET not in shown
    assert SECRET not in unquote(shown)


@given(SCHEMES, PASSWORDS, PLACES, ENDS)
def test_a_text_that_quotes_the_address_is_scrubbed(scheme: str, password: str, place: str, end: str) -> None:
    address = f"{scheme}ada:{password}@{place}{end}"
    host = address.rpartition("@")[0].rpartition("@")[2]
    for quoted in (address, repr(address), password, f"failed to resolve host {host!r}"):
        assert SECRET not in scrubbed(f"no: {quoted}", [address])


def test_a_url_in_a_text_is_scrubbed_without_being_named() -> None:
    assert scrubbed("at postgresql://ada:hunter2@db/w: no") == "at postgresql://ada:***@db/w: no"


@pytest.mark.parametrize("mark", [".", ",", ":", ";", "!", "...", ";,"])
def test_punctuation_after_a_url_stays_in_the_text(mark: str) -> None:
    assert scrubbed(f"no store at http://x{mark} known are") == f"no store at http://x{mark} known are"
    assert scrubbed(f"at http://x?token=hunter2{mark} no") == f"at http://x?token=***{mark} no"


@pytest.mark.parametrize("address", ["host=db password=hunter2", "ada:hunter2@db/w", "postgresql:ada:hunter2@db/w"])
def test_what_looks_like_a_connection_string_is_not_taken_for_a_path(address: str) -> None:
    with pytest.raises(InvalidInput, match="neither a URL nor the path") as refused:
        Address.parse(address)
    assert SECRET not in str(refused.value)
    assert Address.parse(f"./{address}").path == f"./{address}"
