"""The files in deploy/ can be read by what they are for, and name only metrics, settings and options that exist."""

from __future__ import annotations

import json
import re
import shlex
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fencepost.cli.app import COMMANDS, fencepost
from fencepost.server.metrics import METRICS
from fencepost.server.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAMES = {metric.name for metric in METRICS}
LABELS = {metric.name: set(metric.labels) for metric in METRICS}


class Unit(RawConfigParser):
    """A systemd unit; keys keep their capitals."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> Unit:
    parsed = Unit(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parsed.read(DEPLOY / "fencepost.service")
    return parsed


def expressions() -> list[str]:
    """Every PromQL expression in the dashboard and in the alerts."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*shown, *(rule["expr"] for group in alerts["groups"] for rule in group["rules"])]


def metric_of(name: str) -> str:
    """The metric that a series belongs to: a histogram has several series."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_every_metric_that_is_asked_for_exists() -> None:
    asked = {metric_of(name) for text in expressions() for name in re.findall(r"fencepost_\w+", text)}
    assert asked <= NAMES


def test_the_dashboard_shows_every_metric() -> None:
    text = (DEPLOY / "grafana.json").read_text()
    assert {metric_of(name) for name in re.findall(r"fencepost_\w+", text)} == NAMES


@pytest.mark.parametrize("expression", expressions())
def test_labels_are_those_of_the_metric(expression: str) -> None:
    for name, matchers in re.findall(r"(fencepost_\w+)\{([^}]*)\}", expression):
        used = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", matchers))
        assert used <= LABELS[metric_of(name)] | {"instance"}
    assert expression.count("(") == expression.count(")")


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(x < 24 for x, _ in cells)


def test_the_guide_explains_every_alert() -> None:
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    guide = (ROOT / "docs/how-to/operate.md").read_text()
    for group in alerts["groups"]:
        for rule in group["rules"]:
            assert f"`{rule['alert']}`" in guide


def test_prometheus_scrapes_the_path_of_the_metrics() -> None:
    scraping = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = scraping["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{Settings().port}"]
    assert all((DEPLOY / name).exists() for name in scraping["rule_files"])


def test_the_unit_has_its_sections_and_waits_longer_than_the_drain() -> None:
    found = unit()
    assert found.sections() == ["Unit", "Service", "Install"]
    service = found["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert float(service["TimeoutStopSec"]) > settings().drain_s
    assert service["ExecStart"].split()[2:3] == service["ExecStartPre"].split()[2:3]
    assert found["Install"]["WantedBy"] == "multi-user.target"


def settings() -> Settings:
    return load_settings({"store": "store.db"}, file=str(DEPLOY / "server.toml"), environment={})


def test_the_settings_are_accepted_and_secure() -> None:
    assert settings().has_tls
    assert settings().keys
    assert not settings().insecure


def commands() -> list[list[str]]:
    """What the unit and the container run, as lists of arguments after `fencepost`."""
    service = unit()["Service"]
    lines = containerfile()
    run = [shlex.split(service[name])[1:] for name in ("ExecStartPre", "ExecStart")]
    health = json.loads(next(line for line in lines if line.startswith("HEALTHCHECK")).partition(" CMD ")[2])
    return [*run, health[1:], json.loads(next(line for line in lines if line.startswith("CMD")).partition(" ")[2])]


def containerfile() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_commands_and_their_options_exist(arguments: list[str]) -> None:
    assert arguments[0] in COMMANDS
    command = fencepost.get_command(click.Context(fencepost), arguments[0])
    assert command is not None
    here = [str(DEPLOY / Path(each).name) if each.startswith("/etc/fencepost") else each for each in arguments]
    command.make_context(here[0], here[1:])


def test_the_container_is_built_from_the_wheel_and_a_base_image_without_a_registry() -> None:
    lines: Any = containerfile()
    (base,) = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert re.fullmatch(r"python:3\.\d+-slim", base)
    assert any(line.startswith("COPY dist/fencepost-*.whl") for line in lines)
    assert "USER fencepost" in lines
    assert lines.index("USER fencepost") < next(i for i, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
