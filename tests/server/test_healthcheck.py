"""`fencepost healthcheck` exits with 0 for a server that is ready, and with another code for any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.serve import healthcheck_command
from fencepost.server.admission import Refused
from fencepost.server.app import App
from fencepost.server.wire.problems import UNAVAILABLE

from .running import RunningServer, free_port
from .test_tls import Certificates, certificates, serving_tls  # noqa: F401 - a fixture


def code_of(url: str) -> int:
    return CliRunner().invoke(healthcheck_command, [url]).exit_code


def test_a_server_that_is_ready(server: RunningServer) -> None:
    assert code_of(server.url) == 0
    assert code_of(server.url + "/") == 0


def test_a_server_with_a_certificate_that_this_machine_does_not_trust(
    tmp_path: Path,
    certificates: Certificates,  # noqa: F811
) -> None:
    with serving_tls(tmp_path, certificates) as server:
        assert code_of(server.url) == 0
        assert code_of(server.url.replace("https", "http")) != 0


def test_a_server_that_is_not_ready(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drain(self: App, *given: object) -> None:
        raise Refused(UNAVAILABLE, "the server is draining")

    assert server.app is not None
    route = server.app.routes["/readyz"]
    monkeypatch.setitem(route.methods, "GET", drain.__get__(server.app))
    ran = CliRunner().invoke(healthcheck_command, [server.url])
    assert ran.exit_code == 3
    assert "the server is draining" in ran.output


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "nothing", "ftp://x", "http://"])
def test_what_is_no_server(url: str) -> None:
    ran = CliRunner().invoke(healthcheck_command, [url.format(port=free_port())])
    assert ran.exit_code != 0
    assert "not ready" in ran.output
