"""Settings: from flags, the environment and a file, in this order of precedence, and documented."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost import InvalidInput
from fencepost.cli.serve import serve_command
from fencepost.server.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]


def test_the_reference_lists_exactly_the_settings() -> None:
    text = (ROOT / "docs/reference/http.md").read_text()
    section = text.partition("## Settings")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? *\| ([^|]*) \|$", section, re.MULTILINE)
    assert listed == [(each.name, str(each.default), each.metadata["meaning"]) for each in fields(Settings)]


def test_a_flag_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nhost = "::1"\nmax_requests = 11\ndrain_s = 3\n')
    environment = {"FENCEPOST_PORT": "2", "FENCEPOST_MAX_REQUESTS": "22", "FENCEPOST_ACCESS_LOG": "true"}
    chosen = load_settings({"port": 3, "host": None}, file=str(file), environment=environment)
    assert (chosen.port, chosen.max_requests, chosen.host, chosen.drain_s) == (3, 22, "::1", 3.0)
    assert chosen.access_log is True


@pytest.mark.parametrize(
    ("environment", "content", "field"),
    [
        ({"FENCEPOST_PORT": "many"}, "", "port"),
        ({"FENCEPOST_ACCESS_LOG": "perhaps"}, "", "access_log"),
        ({"FENCEPOST_MAX_REQUESTS": "-1"}, "", "max_requests"),
        ({"FENCEPOST_MAX_REQUESTS": "0"}, "", "max_requests"),
        ({"FENCEPOST_MAX_WAIT_S": "0"}, "", "max_wait_s"),
        ({"FENCEPOST_WORKERS": "0"}, "", "workers"),
        ({"FENCEPOST_PORT": "99999"}, "", "port"),
        ({"FENCEPOST_GRPC_PORT": "65536"}, "", "grpc_port"),
        ({"FENCEPOST_CALLER_SHARE": "0"}, "", "caller_share"),
        ({"FENCEPOST_CALLER_SHARE": "1.5"}, "", "caller_share"),
        ({"FENCEPOST_REQUEST_TIMEOUT_S": "nan"}, "", "request_timeout_s"),
        ({"FENCEPOST_LOG_FORMAT": "xml"}, "", "log_format"),
        ({"FENCEPOST_TLS_KEY": "key.pem"}, "", "tls_certificate"),
        ({"FENCEPOST_TLS_CLIENT_CA": "ca.pem"}, "", "tls_client_ca"),
        ({}, 'port = "8765"', "port"),
        ({}, "colour = 1", "colour"),
        ({}, "port = ", "config"),
    ],
)
def test_a_bad_value_is_refused_by_name(tmp_path: Path, environment: dict[str, str], content: str, field: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(content)
    with pytest.raises(InvalidInput) as refused:
        load_settings({}, file=str(file), environment=environment)
    assert refused.value.field == field


def test_show_config_prints_what_is_in_force_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_MAX_REQUESTS", "7")
    shown = CliRunner().invoke(serve_command, ["postgresql://ada:hidden@db/wallet", "--port", "1", "--show-config"])
    assert shown.exit_code == 0, shown.output
    assert "port = 1\n" in shown.output
    assert "max_requests = 7\n" in shown.output
    assert "db/wallet" in shown.output
    assert "hidden" not in shown.output
    assert [line.partition(" = ")[0] for line in shown.output.splitlines()] == [each.name for each in fields(Settings)]


def test_the_representation_of_settings_has_no_secrets() -> None:
    assert "hidden" not in repr(Settings(store="postgresql://ada:hidden@db/wallet"))
