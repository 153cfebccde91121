"""Brokers as the tests run them: real processes on loopback, each in a folder of its own, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from time import monotonic, sleep

PATIENCE_S = 120.0


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    assert found is not None, f"{name} is not installed: run `make brokers`"
    return found


class Broker(AbstractContextManager["Broker"]):
    """A broker process that keeps its data in a folder, so that it can be killed and started again."""

    def __init__(
        self, folder: Path, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self._folder, self._command = folder, list(command)
        self._environment = os.environ | {"HOME": str(folder)} | dict(environment or {})
        self._log = (folder / "broker.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], object]) -> None:
        """Start the process, and wait until `ready` no longer raises."""
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = monotonic() + PATIENCE_S
        while (error := _error_of(ready)) is not None:
            said = (self._folder / "broker.log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"the broker has ended:\n{said}"
            assert monotonic() < deadline, f"the broker is not ready: {error!r}\n{said}"
            sleep(0.05)

    def kill(self) -> None:
        """As `kill -9` to the process and those that it has started."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end, and wait until it has."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, number)
            process.wait(PATIENCE_S)

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self._log.close()


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def nats_server(folder: Path) -> Broker:
    port = free_port()
    storage = str(folder / "jetstream")
    return Broker(folder, [program("nats-server"), "-js", "-sd", storage, "-a", "127.0.0.1", "-p", str(port)], port)


def redis_server(folder: Path) -> Broker:
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    return Broker(folder, [program("redis-server"), *options, *durable], port)


def rabbitmq_server(folder: Path) -> Broker:
    program("rabbitmq-server")
    port, epmd_port = free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{port}\n")
    (folder / "enabled_plugins").write_text("[].\n")
    environment = {
        "RABBITMQ_NODENAME": f"fencepost-{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
    }
    # The script of Debian in /usr/sbin changes to the user rabbitmq, which cannot write here; this one is beneath it.
    script = next(Path("/usr/lib/rabbitmq").glob("**/sbin/rabbitmq-server"), None)
    # Erlang would start its port mapper as a daemon, which stays. As a child it is killed with the broker.
    command = f"{program('epmd')} -address 127.0.0.1 -port {epmd_port} & exec {script or program('rabbitmq-server')}"
    return Broker(folder, ["/bin/sh", "-c", command], port, environment)
