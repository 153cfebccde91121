"""Real clusters: processes of their own, started and ended here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest
from tests.support.postgres import PostgresServer

from fencepost.spark.spark_session.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent
SOURCES = str(Path(__file__).parents[3] / "src")
START_S = 240.0
DRIVER_S = 600.0  # long, for a machine that is busy with other things; a test has its own end


def environment(folder: Path) -> dict[str, str]:
    """What Spark's daemons need: a Java, this Python, this package, and a place for their files."""
    chosen = dict(os.environ)
    chosen.update(
        SPARK_HOME=str(SPARK_HOME),
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=os.pathsep.join([SOURCES, str(Path(__file__).parents[3])]),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false",
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_LOCAL_DIRS=str(folder / "local"),
    )
    home = java_home(chosen)
    if home is not None:
        chosen["JAVA_HOME"] = home
    return chosen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Driven:
    returncode: int
    stdout: str
    stderr: str


_drivers: list[Driver] = []


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    """Whatever a test has come to, nothing that it has started goes on."""
    yield
    while _drivers:
        _drivers.pop().kill()


class Driver:
    """A program that drives Spark: with its JVM in a group of their own, and what they say in files.

    Pipes would be waited for as long as any process holds them, a JVM that does not end included, and a full one
    stops whoever writes to it: so a slow machine made a test hang.
    """

    def __init__(
        self, folder: Path, script: str, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._out, self._err = (folder / f"driver-{uuid4().hex}.{kind}" for kind in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                env=env or environment(folder),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        _drivers.append(self)

    def said(self) -> str:
        return self._out.read_text(errors="replace")

    def complained(self) -> str:
        return self._err.read_text(errors="replace")

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Until then, or until the driver has ended: its end may be what shows it."""
        deadline = time.monotonic() + DRIVER_S
        while self.process.poll() is None and not reached():
            assert time.monotonic() < deadline, f"the driver never got there\n{self.complained()[-2_000:]}"
            time.sleep(0.05)

    def result(self) -> Driven:
        """When it has ended; what is left of its group goes with it."""
        try:
            code = self.process.wait(DRIVER_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        self.kill()
        return Driven(code, self.said(), self.complained())

    def kill(self) -> None:
        """With -9, it and its JVM, as if the machine were gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Daemon:
    """A process of Spark, with all of its children in a group of their own."""

    def __init__(self, folder: Path, name: str, main: str, *arguments: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), main, *arguments],
                env=environment(folder),
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, *words: str) -> None:
        deadline = time.monotonic() + START_S
        while not any(word in self.log() for word in words):
            assert self.process.poll() is None, self.log()[-2_000:]
            assert time.monotonic() < deadline, self.log()[-2_000:]
            time.sleep(0.2)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """With -9, it and its children, as if the machine were gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Cluster:
    """A standalone cluster of a master and two workers, each a JVM of its own, on loopback."""

    def __init__(self, folder: Path) -> None:
        port, web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.folder = folder
        place = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web))
        self.master = Daemon(folder, "master", "org.apache.spark.deploy.master.Master", *place)
        self.master.wait_for("I have been elected leader")
        self.workers = [self.add_worker(number) for number in range(2)]

    def add_worker(self, number: int) -> Daemon:
        arguments = ("--host", "127.0.0.1", "--webui-port", str(free_port()), "--cores", "1", "--memory", "1g")
        worker = Daemon(self.folder, f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments, self.url)
        worker.wait_for("Successfully registered with master")
        return worker

    def begin(self, script: str, *arguments: str) -> Driver:
        return Driver(self.folder, script, self.url, *arguments)

    def run(self, script: str, *arguments: str) -> Driven:
        return self.begin(script, *arguments).result()

    def close(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server
