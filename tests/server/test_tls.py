"""TLS with real certificates: who is trusted, which versions are spoken, and a new certificate without a restart."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import umadb

import fencepost
from fencepost import Event, InvalidInput, StoreUnavailable
from fencepost.server.access import Right
from fencepost.server.keys import add_key
from fencepost.server.server_process import check_settings
from fencepost.server.settings import Settings

from .running import RunningServer, free_port

SOON_S = 20.0
REQUEST = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


class Certificates:
    """An authority with a certificate for this machine, and one for a client, made by openssl."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.name = name
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2", "ca", "-subj", f"/CN={name}"
        )
        self.signed("server")
        self.signed("client")

    def __getitem__(self, file: str) -> str:
        return str(self.folder / file)

    def signed(self, who: str) -> None:
        self._openssl(REQUEST, who, "-subj", f"/CN={self.name} {who}")
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        self._run(
            f"x509 -req -in {self[who + '.pem']} -CA {self['ca.pem']} -CAkey {self['ca.key']} -days 2"
            f" -out {self[who + '.pem']} -extfile {extensions}".split()
        )

    def _openssl(self, command: str, who: str, *more: str) -> None:
        self._run([*command.split(), "-keyout", self[who + ".key"], "-out", self[who + ".pem"], *more])

    def _run(self, arguments: list[str]) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls") / "theirs", "theirs")


def serving_tls(folder: Path, certificates: Certificates, **settings: object) -> RunningServer:
    return RunningServer(
        str(folder / "wallet.db"),
        tls_certificate=certificates["server.pem"],
        tls_key=certificates["server.key"],
        **settings,
    )


def test_a_store_opens_over_https_by_an_authority_that_it_trusts(tmp_path: Path, certificates: Certificates) -> None:
    with serving_tls(tmp_path, certificates) as server:
        with fencepost.open(server.url, ca_file=certificates["ca.pem"]) as store:
            store.append([Event("T")])
            assert [event.type for event in store.read()] == ["T"]
        with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            fencepost.open(server.url, patience_s=0.2)


def test_mutual_tls_refuses_a_client_without_a_known_certificate(
    tmp_path: Path, certificates: Certificates, strangers: Certificates
) -> None:
    with serving_tls(tmp_path, certificates, tls_client_ca=certificates["ca.pem"]) as server:
        ca_file = certificates["ca.pem"]
        known = {"client_certificate": certificates["client.pem"], "client_key": certificates["client.key"]}
        with fencepost.open(server.url, ca_file=ca_file, **known) as store:
            assert store.head() == 0
        unknown = {"client_certificate": strangers["client.pem"], "client_key": strangers["client.key"]}
        for shown in ({}, unknown):
            with pytest.raises(StoreUnavailable):
                fencepost.open(server.url, ca_file=ca_file, patience_s=0.2, **shown)


@pytest.mark.parametrize(
    ("version", "spoken"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_2_is_the_oldest_version(
    tmp_path: Path, certificates: Certificates, version: ssl.TLSVersion, spoken: bool
) -> None:
    with serving_tls(tmp_path, certificates) as server:
        context = ssl.create_default_context(cafile=certificates["ca.pem"])
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("127.0.0.1", server.port), timeout=SOON_S) as plain:
            if spoken:
                with context.wrap_socket(plain, server_hostname="localhost") as secure:
                    assert secure.version() == version.name.replace("_", ".")
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(plain, server_hostname="localhost")


def test_a_new_certificate_is_used_without_a_restart_and_half_of_one_is_not(
    tmp_path: Path, certificates: Certificates, strangers: Certificates
) -> None:
    used = Certificates(tmp_path / "used", "used")
    for file in ("server.pem", "server.key"):
        shutil.copy(certificates[file], used[file])
    with serving_tls(tmp_path, used) as server:
        trusting = ssl.create_default_context(cafile=certificates["ca.pem"])
        lasting = httpx.Limits(keepalive_expiry=60)  # longer than the test: this is about a connection that stays open
        client = httpx.Client(base_url=server.url, verify=trusting, limits=lasting)
        assert client.get("/healthz").status_code == 200
        shutil.copy(strangers["server.pem"], used["server.pem"])  # the key is not there yet
        time.sleep(2)
        trusting = ssl.create_default_context(cafile=certificates["ca.pem"])
        assert httpx.get(f"{server.url}/healthz", verify=trusting).status_code == 200
        shutil.copy(strangers["server.key"], used["server.key"])
        trusting = ssl.create_default_context(cafile=strangers["ca.pem"])
        deadline = time.monotonic() + SOON_S
        while not answers(server.url, trusting):
            assert time.monotonic() < deadline, "the new certificate is not used"
        assert client.get("/healthz").status_code == 200, "a connection that is open goes on"
        client.close()


def answers(url: str, trusting: ssl.SSLContext) -> bool:
    try:
        return httpx.get(f"{url}/healthz", verify=trusting).status_code == 200
    except httpx.ConnectError:
        return False


def test_umadbs_client_uses_tls_and_an_api_key(tmp_path: Path, certificates: Certificates) -> None:
    port = free_port()
    keys = tmp_path / "keys.json"
    key = add_key(keys, "ada", rights=frozenset({Right.READ, Right.APPEND})).secret
    with serving_tls(tmp_path, certificates, keys=str(keys), grpc_port=port):
        url = f"https://localhost:{port}"
        with umadb.Client(url, ca_path=certificates["ca.pem"], api_key=key) as client:
            assert client.append([umadb.Event(event_type="T", data=b"", tags=[])]) == 1
        with (
            umadb.Client(url, ca_path=certificates["ca.pem"], api_key="fp_wrong") as client,
            pytest.raises(umadb.AuthenticationError),
        ):
            client.head()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"host": "0.0.0.0"}, "API keys are needed"),
        ({"host": "0.0.0.0", "keys": "keys.json"}, "unencrypted"),
        ({"host": "example.org", "keys": "keys.json"}, "unencrypted"),
        ({"host": "::", "tls_certificate": "c", "tls_key": "k"}, "API keys are needed"),
    ],
)
def test_a_server_that_would_be_open_to_others_does_not_start(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_settings(Settings(store="wallet.db", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "127.0.0.1"},
        {"host": "::1", "keys": "keys.json"},
        {"host": "localhost"},
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "keys": "keys.json", "tls_certificate": "server.pem", "tls_key": "server.key"},
    ],
)
def test_a_server_that_is_safe_starts(tmp_path: Path, certificates: Certificates, settings: dict[str, str]) -> None:
    add_key(tmp_path / "keys.json", "ada", rights=frozenset(Right))
    files = {
        "keys.json": str(tmp_path / "keys.json"),
        **{each: certificates[each] for each in ("server.pem", "server.key")},
    }
    settings = {name: files.get(value, value) for name, value in settings.items()}
    check_settings(Settings(store="wallet.db", **settings))  # type: ignore[arg-type]


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"missing\.pem"):
        RunningServer(
            str(tmp_path / "wallet.db"),
            tls_certificate=str(tmp_path / "missing.pem"),
            tls_key=str(tmp_path / "missing.key"),
        )
