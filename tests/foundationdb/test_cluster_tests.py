"""The tests for a real cluster are sound as far as that can be seen without one: on the simulator, with fake tools."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import fdb.fdboptions as options
import pytest
from tests.support.simulated_fdb import Faults, SimulatedCluster

from fencepost import EventStore
from fencepost.testing.clients import ClientStore

from .cluster import administration, clients
from .clusters import engine_on

FOLDER = Path(__file__).parent / "cluster"


def test_what_a_client_does_is_noted_and_checked(tmp_path: Path) -> None:
    cluster = SimulatedCluster(1)
    store = EventStore(engine_on(cluster))
    cluster.faults = Faults(1, rate=0.05)
    for name in ("0", "1"):
        clients.work(ClientStore(store, name, path=tmp_path / f"{name}.history"), name, range(40))
    cluster.faults = Faults()
    cluster.deliver()
    assert clients.answers(tmp_path) > 20
    assert clients.violations(store, tmp_path) == []


def test_an_event_that_is_missing_from_the_log_is_found(tmp_path: Path) -> None:
    store = EventStore(engine_on(SimulatedCluster(1)))
    clients.work(ClientStore(store, "0", path=tmp_path / "0.history"), "0", range(10))
    assert clients.violations(EventStore(engine_on(SimulatedCluster(2))), tmp_path) != []


def test_buggify_is_set_by_options_that_the_client_knows() -> None:
    names = {name.removeprefix("FDB_NETWORK_OPTION_").lower() for name in clients.BUGGIFY}
    assert names <= {name.lower() for name in options.NetworkOption}


def test_the_tools_are_called_with_their_documented_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = tmp_path / "called"
    for tool in ("fdbcli", "fdbbackup", "fdbrestore"):
        path = tmp_path / tool
        path.write_text(f'#!/bin/sh\necho "{tool}" "$@" >> {called}\necho "10.0.0.1:4500"\necho "10.0.0.2:4500:tls"\n')
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert administration.processes("fdb.cluster") == ["10.0.0.1:4500", "10.0.0.2:4500:tls"]
    administration.kill("fdb.cluster", ["10.0.0.1:4500"])
    administration.suspend("fdb.cluster", 8, ["10.0.0.1:4500", "10.0.0.2:4500:tls"])
    backup = tmp_path / "backup"
    administration.back_up("fdb.cluster", backup, b"\x02a\x00", b"\x02a\x00\xff")
    (backup / "backup-2026-01-01").mkdir(parents=True)
    administration.restore("fdb.cluster", backup, b"\x02a\x00", b"\x02a\x00\xff")
    assert called.read_text().splitlines() == [
        "fdbcli -C fdb.cluster --exec kill",
        "fdbcli -C fdb.cluster --exec kill; kill 10.0.0.1:4500",
        "fdbcli -C fdb.cluster --exec suspend; suspend 8 10.0.0.1:4500 10.0.0.2:4500:tls; status minimal",
        rf"fdbbackup start -C fdb.cluster -d file://{backup} -k \x02a\x00 \x02a\x00\xff -w",
        rf"fdbrestore start --dest-cluster-file fdb.cluster -r file://{backup}/backup-2026-01-01 "
        r"-k \x02a\x00 \x02a\x00\xff -w",
    ]


def test_servers_count_as_restarted_once_they_answer_and_are_young(monkeypatch: pytest.MonkeyPatch) -> None:
    def status(**uptimes_s: int) -> str:
        processes = {name: {"address": name, "uptime_seconds": uptime_s} for name, uptime_s in uptimes_s.items()}
        return json.dumps({"cluster": {"processes": processes}})

    answers = iter([status(one=900, two=3), status(two=4), status(one=1, two=5)])
    commands: list[str] = []

    def fdbcli(cluster_file: str, command: str) -> str:
        commands.append(command)
        return next(answers)

    monkeypatch.setattr(administration, "fdbcli", fdbcli)
    monkeypatch.setattr(administration, "POLL_S", 0.0)
    administration.wait_until_restarted("fdb.cluster", ["one", "two"], within_s=20)
    assert commands == ["status json"] * 3


def test_servers_that_were_not_suspended_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"cluster": {"processes": {"a": {"address": "10.0.0.1:4500", "uptime_seconds": 900}}}}
    monkeypatch.setattr(administration, "fdbcli", lambda *_: json.dumps(status))
    monkeypatch.setattr(administration, "POLL_S", 0.0)
    monkeypatch.setattr(administration, "TIMEOUT_S", 0)
    with pytest.raises(AssertionError, match="did not restart"):
        administration.wait_until_restarted("fdb.cluster", ["10.0.0.1:4500"], within_s=20)


def test_without_a_cluster_the_tests_are_not_collected_and_with_one_they_are() -> None:
    def collected(**environment: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(FOLDER)]
        inherited = {key: value for key, value in os.environ.items() if key != "FENCEPOST_TEST_FDB"}
        return subprocess.run(command, capture_output=True, text=True, env={**inherited, **environment}).stdout

    assert "no tests collected" in collected()
    body = ast.parse((FOLDER / "test_cluster.py").read_text()).body
    tests = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    listed = collected(FENCEPOST_TEST_FDB="/no/such/fdb.cluster")
    for test in tests:
        assert test in listed or not test.startswith("test_")
