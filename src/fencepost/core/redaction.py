"""Addresses without their secrets: every message, log line and repr that names a store goes through here.

An address is taken apart into pieces, and a piece is shown only if it is known to be harmless: a scheme, a user, a
host, a port, a database, and the parameters listed below. Everything else counts as a secret and is printed as `***`.
So a password is never shown because it was written in an unexpected way: where `@`, `/` or `?` in a password make an
address ambiguous, nothing but its scheme is shown.

tests/unit/test_redaction.py holds this for generated addresses, tests/cli/test_secrets.py for every command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from urllib.parse import unquote

HIDDEN: Final = "***"

Piece: TypeAlias = tuple[str, bool]
"""A part of an address, and whether it may be shown."""

# Parameters whose values are not secrets: Fencepost's own, and these of PostgreSQL.
SHOWN_PARAMETERS: Final = set(
    """
    mode schema create connections patience_s record_conditions namespace partitions transaction_bytes
    max_transactions table
    host hostaddr port dbname user passfile require_auth channel_binding connect_timeout client_encoding options
    application_name fallback_application_name keepalives keepalives_idle keepalives_interval keepalives_count
    tcp_user_timeout replication gssencmode gssdelegation gsslib krbsrvname sslmode sslnegotiation sslcompression
    sslcert sslkey sslcertmode sslrootcert sslcrl sslcrldir sslsni requirepeer requiressl
    ssl_min_protocol_version ssl_max_protocol_version min_protocol_version max_protocol_version
    service servicefile target_session_attrs load_balance_hosts oauth_issuer oauth_client_id oauth_scope
    """.split()  # noqa: SIM905  a list literal would take a line for each name
)
# Schemes whose user may be a token.
TOKEN_SCHEMES: Final = ("http", "https")

# Every pattern takes time in proportion to the text: repetitions that a search may begin anywhere in are bounded.
_SECRET_NAME: Final = re.compile(
    r"(?:pass(?!file)|pwd|secret|token|credential|api_?key|access_?key|client_key|server_key)[\w.-]{0,40}\s{0,9}=",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"(?:/(?!/)|\.\.?/|~/|(?:sqlite|lake|file):(?!//))")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://)?")
# A scheme before a URL: a lake in an object store, or an address with a scheme too many.
_OUTER_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:(?=[A-Za-z][A-Za-z0-9+.-]{0,30}://)")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff]")
_USER: Final = re.compile(r"(?:[\w.~+-]|%(?!3a|40)[0-9a-f]{2})*", re.IGNORECASE)
_HOST: Final = r"(?:\[[0-9a-f:.%]*\]|(?:[\w.~-]|%2f)*)(?::[0-9]*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[\w.,:;/%+~*-]*")
_WORDS: Final = re.compile(r"\w+")
# Punctuation at the end belongs to the sentence, not to the URL.
_ADDRESS_IN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s'\"]*[^\s'\".,:;!]")
_SHORT: Final = 3  # a shorter secret is looked for as a word of its own: it may be part of any other word


def redacted(address: str | os.PathLike[str]) -> str:
    """The address without its secrets, for messages and logs.

    >>> redacted("postgresql://ada:hunter2@db/wallet?schema=eu")
    'postgresql://ada:***@db/wallet?schema=eu'
    >>> redacted("postgresql://ada:hun/ter2@db/wallet")
    'postgresql://***'
    """
    return "".join(text if shown else HIDDEN for text, shown in _pieces(address))


def has_secret(address: str | os.PathLike[str]) -> bool:
    """Whether the address holds a secret, or anything that may be one.

    >>> has_secret("postgresql://ada@db/wallet"), has_secret("postgresql://db/wallet?password=x"), has_secret("w.db")
    (False, True, False)
    """
    return any(_hidden(address))


def scrubbed(text: str, addresses: Iterable[str] = ()) -> str:
    """The text without the secrets of the addresses, nor of any URL that it quotes.

    For texts that Fencepost did not write, such as the errors of a driver, which quote parts of an address.
    """
    for address in addresses:
        secrets = [secret for secret in _hidden(address) if secret]
        if secrets:
            text = text.replace(address, redacted(address))
        for secret in secrets:
            for form in sorted({secret, unquote(secret), *_WORDS.findall(secret)}, key=len, reverse=True):
                text = _without(text, form)
    return _ADDRESS_IN_TEXT.sub(lambda found: redacted(found.group()), text)


def _without(text: str, secret: str) -> str:
    if len(secret) >= _SHORT:
        return text.replace(secret, HIDDEN)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)


def _hidden(address: str | os.PathLike[str]) -> Iterator[str]:
    return (text for text, shown in _pieces(address) if not shown)


def _pieces(address: str | os.PathLike[str]) -> list[Piece]:
    if not isinstance(address, str):  # a path object means a file
        return [(os.fsdecode(address), True)]
    outer = _OUTER_SCHEME.match(address)
    if outer is not None:
        return [(outer.group(), True), *_pieces(address[outer.end() :])]
    if _PATH.match(address):
        return [(address, True)]
    scheme = _SCHEME.match(address)
    if scheme is None or not scheme.group().endswith("//"):
        return _pieces_of_text(address)
    rest = address[scheme.end() :]
    pieces = _pieces_of_url(scheme.group(), rest)
    # What cannot be taken apart without doubt is not shown in part either.
    return [(scheme.group(), True), *([(rest, False)] if pieces is None else pieces)]


def _pieces_of_text(text: str) -> list[Piece]:
    """Of a text that is not a URL: the name of a file, a connection string, or a URL with a mistake in it."""
    before = unquote(text).rpartition("@")[0]
    mistaken = text.startswith(("//", "postgres", "http")) and re.match(r"\w*:|//", text)
    if ":" in before or mistaken:
        scheme = _SCHEME.match(text)
        end = scheme.end() if scheme else 0
        return [(text[:end], True), (text[end:], False)]
    secret = _SECRET_NAME.search(text)
    if secret:  # where its value ends depends on quotes, which may be wrong as well
        return [(text[: secret.end()], True), (text[secret.end() :], False)]
    return [(text, not _SECRET_NAME.search(unquote(text)))]


def _pieces_of_url(scheme: str, rest: str) -> list[Piece] | None:
    """Of what follows the scheme; None if it is ambiguous or malformed. As libpq reads it, not as RFC 3986 does."""
    if _CONTROL.search(rest) or is_ambiguous(rest):
        return None
    login, place = login_of(rest)
    hosts = _HOSTS.match(place)
    assert hosts is not None, "the pattern matches the empty text"
    path, question_mark, query = place[hosts.end() :].partition("?")
    if (path and not path.startswith("/")) or not _PLAIN.fullmatch(path):
        return None
    pieces: list[Piece] = []
    if login is not None:
        shown = _pieces_of_login(login, is_token=scheme.lower().startswith(TOKEN_SCHEMES))
        if shown is None:
            return None
        pieces += [*shown, ("@", True)]
    pieces.append((hosts.group() + path + question_mark, True))
    return pieces + _pieces_of_query(query)


def login_of(rest: str) -> tuple[str | None, str]:
    """What precedes the `@` in a URL without its scheme, None without one, and what follows; as libpq parts them.

    >>> login_of("ada:a?b@db/wallet"), login_of("db/wallet?user=a@b")
    (('ada:a?b', 'db/wallet'), (None, 'db/wallet?user=a@b'))
    """
    before, at, after = rest.partition("@")
    return (before, after) if at and "/" not in before else (None, rest)


def is_ambiguous(rest: str) -> bool:
    """Whether a password in a URL without its scheme may end later, or earlier, than libpq thinks.

    >>> is_ambiguous("ada:a/b@db/wallet"), is_ambiguous("ada:a@b@db"), is_ambiguous("db:1?password=a@b")
    (True, True, True)
    """
    login, place = login_of(rest)
    # A NUL ends the text for libpq. A login with parameters is not a login: its @ is part of a parameter's value.
    return "\0" in rest or "@" in place or (login is not None and "=" in login.partition("?")[2])


def _pieces_of_login(login: str, *, is_token: bool) -> list[Piece] | None:
    if is_token:
        return [(login, False)]
    user, colon, password = login.partition(":")
    if not _USER.fullmatch(user):
        return None
    return [(user + colon, True), (password, not password)]


def _pieces_of_query(query: str) -> list[Piece]:
    """The parameters up to the first one that is a secret: an & in a password looks like the start of another one."""
    pieces: list[Piece] = []
    parameters = query.split("&")
    for number, parameter in enumerate(parameters):
        separator = "&" if number else ""
        name, equals, value = parameter.partition("=")
        decoded = unquote(name).lower()
        if decoded not in SHOWN_PARAMETERS | {""} or not _is_plain(value) or (equals and not decoded):
            rest = "&".join(parameters[number:])
            known = _SECRET_NAME.search(f"{name}=") is not None
            kept = f"{name}=" if known and equals else ""
            return [*pieces, (separator + kept, True), (rest[len(kept) :], False)]
        pieces.append((separator + parameter, True))
    return pieces


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and not _SECRET_NAME.search(unquote(value))
