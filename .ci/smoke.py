"""What an installed Fencepost must do, without the repository: `python -I smoke.py "[extras]"` in an empty folder."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from importlib import metadata, resources
from pathlib import Path

import fencepost
from fencepost import AppendCondition, ConditionFailed, Event, Query

DATA = ["py.typed", "engines/sqlite/schema.sql", "engines/postgres/sql/append.sql"]
COMMAND = Path(sys.executable).with_name("fencepost")


def main() -> None:
    extras = sys.argv[1]
    assert Path(fencepost.__file__).is_relative_to(sys.prefix), fencepost.__file__
    package_data()
    library()
    command()
    if not extras:
        missing_extras_are_named()
    if "server" in extras:
        server()
    if "postgres" in extras:
        postgres_engine_loads()
    print(f"fencepost{extras} {metadata.version('fencepost')} on Python {sys.version.split()[0]}: ok")


def package_data() -> None:
    package = resources.files("fencepost")
    for name in DATA:
        assert package.joinpath(name).is_file(), name


def library() -> None:
    Path("library.db").unlink(missing_ok=True)
    with fencepost.open("library.db") as store:
        wallet = Query.of(tags={"wallet:w1"})
        store.append([Event("Opened", tags={"wallet:w1"}, data=b"1")], AppendCondition(wallet))
        assert [event.data for event in store.read(wallet)] == [b"1"]
        try:
            store.append([Event("Opened", tags={"wallet:w1"})], AppendCondition(wallet))
        except ConditionFailed:
            return
        raise AssertionError("a stale condition was accepted")


def command() -> None:
    assert fencepost_says("--version").endswith(metadata.version("fencepost"))
    assert fencepost_says("head", "library.db") == "1"
    assert json.loads(fencepost_says("read", "library.db"))["type"] == "Opened"
    assert json.loads(fencepost_says("verify", "library.db"))["problems"] == []
    assert "--port" in fencepost_says("serve", "--help")


def fencepost_says(*arguments: str, exit_code: int = 0) -> str:
    done = subprocess.run([str(COMMAND), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == exit_code, (arguments, done.returncode, done.stdout)
    return done.stdout.strip()


def missing_extras_are_named() -> None:
    assert "extra 'server'" in fencepost_says("serve", "library.db", exit_code=2)
    assert "extra 'postgres'" in refusal(ImportError, "postgresql://127.0.0.1/none")


def refusal(kind: type[Exception], address: str) -> str:
    try:
        fencepost.open(address).close()
    except kind as error:
        return str(error)
    raise AssertionError(f"{address} was opened")


def server() -> None:
    """`fencepost serve` starts, and serves the page that describes its interface."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    service = subprocess.Popen([str(COMMAND), "serve", "library.db", "--port", port])
    try:
        assert b"<html" in page(f"http://127.0.0.1:{port}/docs", service).lower()
    finally:
        service.terminate()
        service.wait()


def page(address: str, service: subprocess.Popen[bytes]) -> bytes:
    for _ in range(300):
        assert service.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(address) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{address} did not answer")


def postgres_engine_loads() -> None:
    """The driver is there: what is refused now is the connection."""
    refusal(fencepost.StoreError, "postgresql://127.0.0.1:1/none?connect_timeout=1")


if __name__ == "__main__":
    main()
