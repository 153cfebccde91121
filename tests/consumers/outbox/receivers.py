"""What receives the messages of an outbox in these tests: a list in memory, or a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.consumers.places import Added

from fencepost import EventStore
from fencepost.consumers.outbox import Breaker, Message, Topic
from fencepost.decisions import encode

TOPIC = Topic("additions", source="/tests", types={Added}, key="key")
QUICK = Breaker(failures=3, base_s=0.02, cap_s=0.1)


class Collector:
    """A publisher that keeps what it is given. `trouble` is asked before each batch, and may raise."""

    def __init__(self, trouble: Callable[[Sequence[Message]], None] | None = None) -> None:
        self.trouble = trouble
        self.batches: list[list[Message]] = []
        self.calls = 0
        self.closed = 0

    def publish(self, messages: Sequence[Message]) -> None:
        self.calls += 1
        if self.trouble is not None:
            self.trouble(messages)
        self.batches.append(list(messages))

    def close(self) -> None:
        self.closed += 1

    @property
    def messages(self) -> list[Message]:
        return [message for batch in list(self.batches) for message in batch]

    @property
    def positions(self) -> list[int]:
        return [message.event.position for message in self.messages]


class Receiver(AbstractContextManager["Receiver"]):
    """An HTTP server that keeps each request, and answers with `answer(number of the request, body)`."""

    def __init__(self, answer: Callable[[int, bytes], int] = lambda number, body: 204) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.accepted: list[dict[str, Any]] = []
        self.answer_headers: dict[str, str] = {}
        self.connections = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = answer(len(receiver.requests), body)
                if status == 0:
                    self.close_connection = True
                    return
                if 200 <= status < 300:
                    found = json.loads(body)
                    receiver.accepted += found if isinstance(found, list) else [found]
                self.send_response(status)
                text = b"" if status == 204 else b"because of a rule"
                for name, value in receiver.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/events?token=hidden"

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.accepted]

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def add_keys(store: EventStore, keys: str) -> None:
    """Store an event for each letter, with the letter as its key."""
    store.append([encode(Added(key, 1)) for key in keys])


def first_seen(ids: Sequence[str]) -> list[str]:
    """What a receiver sees that ignores the ids that it has seen before."""
    return list(dict.fromkeys(ids))
