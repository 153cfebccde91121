"""The stores under test, behind the few verbs that the workloads need.

Each peer is used as its own documentation shows, with its default durability. A `Caller` is what
one thread uses; peers that want a connection per thread get one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol

import umadb

import fencepost


class Fact(NamedTuple):
    """An event, before a peer has made its own of it."""

    type: str
    tags: tuple[str, ...]
    data: bytes


class Caller(Protocol):
    def append(self, facts: Sequence[Fact]) -> int: ...
    def append_if(self, facts: Sequence[Fact], types: Sequence[str], tags: Sequence[str], after: int) -> bool: ...
    def read(self, types: Sequence[str], tags: Sequence[str]) -> tuple[int, int]:
        """How many events there are, and the head."""

    def read_all(self) -> int: ...
    def head(self) -> int: ...


class Fencepost:
    name = "Fencepost"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fencepost.db"
        self.store = fencepost.open(self.path)

    def caller(self) -> FencepostCaller:
        return FencepostCaller(self.store)

    def size(self) -> int:
        self.store.close()
        return sum(path.stat().st_size for path in self.path.parent.glob("fencepost.db*"))

    def close(self) -> None:
        self.store.close()


class FencepostCaller:
    def __init__(self, store: fencepost.EventStore) -> None:
        self._store = store

    def append(self, facts: Sequence[Fact]) -> int:
        return self._store.append([fencepost_event(fact) for fact in facts]).last

    def append_if(self, facts: Sequence[Fact], types: Sequence[str], tags: Sequence[str], after: int) -> bool:
        condition = fencepost.AppendCondition(fencepost.Query.of(types=types, tags=tags), after=after)
        try:
            self._store.append([fencepost_event(fact) for fact in facts], condition)
        except fencepost.ConditionFailed:
            return False
        return True

    def read(self, types: Sequence[str], tags: Sequence[str]) -> tuple[int, int]:
        reading = self._store.read(fencepost.Query.of(types=types, tags=tags))
        return sum(1 for _ in reading), reading.head

    def read_all(self) -> int:
        return sum(1 for _ in self._store.read())

    def head(self) -> int:
        return self._store.head()


def fencepost_event(fact: Fact) -> fencepost.Event:
    return fencepost.Event(fact.type, tags=fact.tags, data=fact.data)


class Umadb:
    name = "UmaDB"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "uma.db"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [Path(sys.executable).with_name("umadb"), "--listen", self._address, "--db-path", self.path]
        # It ends with us, however we end: the kernel is asked to see to that.
        self._server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        deadline = monotonic() + 20
        while True:
            try:
                self.caller().head()
                break
            except Exception:
                if monotonic() > deadline:
                    raise
                sleep(0.05)

    @property
    def process_id(self) -> int:
        return self._server.pid

    def caller(self) -> UmadbCaller:
        return UmadbCaller(umadb.Client(f"http://{self._address}"))

    def size(self) -> int:
        self.close()
        return sum(path.stat().st_size for path in self.path.parent.glob("uma.db*") if path.is_file())

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


class UmadbCaller:
    def __init__(self, client: Any) -> None:
        self._client = client

    def append(self, facts: Sequence[Fact]) -> int:
        return int(self._client.append([_uma_event(fact) for fact in facts]))

    def append_if(self, facts: Sequence[Fact], types: Sequence[str], tags: Sequence[str], after: int) -> bool:
        query = umadb.Query(items=[umadb.QueryItem(types=list(types), tags=list(tags))])
        try:
            self._client.append(
                [_uma_event(fact) for fact in facts], condition=umadb.AppendCondition(query, after=after or None)
            )
        except umadb.IntegrityError:
            return False
        return True

    def read(self, types: Sequence[str], tags: Sequence[str]) -> tuple[int, int]:
        response = self._client.read(umadb.Query(items=[umadb.QueryItem(types=list(types), tags=list(tags))]))
        count = sum(1 for _ in response)
        return count, response.head() or 0

    def read_all(self) -> int:
        return sum(1 for _ in self._client.read())

    def head(self) -> int:
        return self._client.head() or 0


def _uma_event(fact: Fact) -> Any:
    return umadb.Event(event_type=fact.type, data=fact.data, tags=list(fact.tags))


def die_with_parent() -> None:
    import ctypes
    import signal

    with suppress(OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() == 1:
        os._exit(1)
