"""A mock of S3 for tests: buckets in memory behind HTTP on loopback. It is not S3, and checks no signatures.

It has what lakes and tables need: put, get with a range, head, delete of one or several objects, listing in pages and
by folder, uploads in parts, bodies in chunks as Amazon's own client sends them, and the conditions If-Match and
If-None-Match on put, which it decides one request at a time as S3 does. A test can look into `objects`, change them,
set their age, hold a request back or refuse it, and make the mock ignore conditions, as some imitations of S3 do.

`deltalake` holds Python's lock during some requests, so a mock in the same process could not answer them.
`mock_s3_apart` runs the mock in a process of its own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE_OBJECTS: Final = 3  # few, so that listings have several pages


@dataclass
class Kept:
    content: bytes
    written_s: float = field(default_factory=time.time)

    @property
    def e_tag(self) -> str:
        return f'"{md5(self.content).hexdigest()}"'


@dataclass
class MockS3:
    """The mock: `objects` by bucket and key, such as `bucket/lake/manifest.json`."""

    objects: dict[str, Kept] = field(default_factory=dict)
    ignores_conditions: bool = False
    before: Callable[[str, str], None] = lambda method, key: None  # called in the request's own thread
    refuses: Callable[[str, str], bool] = lambda method, key: False  # answers 403, which clients do not repeat
    requests: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return environment_of(self.port)

    def keys(self, part: str = "") -> list[str]:
        return sorted(key for key in self.objects if part in key)


def environment_of(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "mock",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def mock_s3() -> Iterator[MockS3]:
    """A mock that serves until the block ends."""
    mock = MockS3()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"mock": mock}))
    server.daemon_threads = True
    mock.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield mock
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Controls:
    """What a test asks of a mock in another process."""

    def __init__(self, mock: MockS3) -> None:
        self._mock = mock
        self._arrived, self._release = threading.Event(), threading.Event()

    def port(self) -> int:
        return self._mock.port

    def keys(self, part: str) -> list[str]:
        with self._mock.lock:
            return self._mock.keys(part)

    def content(self, key: str) -> bytes:
        return self._mock.objects[key].content

    def ignore_conditions(self) -> None:
        self._mock.ignores_conditions = True

    def grow_old(self, seconds: float) -> None:
        for kept in self._mock.objects.values():
            kept.written_s -= seconds

    def flip(self, key: str, at: int) -> None:
        kept = self._mock.objects[key]
        kept.content = kept.content[:at] + bytes([kept.content[at] ^ 1]) + kept.content[at + 1 :]

    def requests(self, method: str, part: str) -> int:
        return sum(1 for sent, key in list(self._mock.requests) if sent == method and part in key)

    def hold(self, method: str, part: str, fails: bool) -> None:
        """Hold the next such request back, and no later one. If it `fails`, its connection is then closed."""
        self._arrived.clear()
        self._release.clear()
        mine = threading.Lock()

        def before(sent: str, key: str) -> None:
            if sent == method and part in key and mine.acquire(blocking=False):
                self._arrived.set()
                self._release.wait()
                if fails:
                    raise ConnectionAbortedError

        self._mock.before = before

    def wait_until_held(self) -> bool:
        return self._arrived.wait(120)

    def release(self) -> None:
        self._release.set()


class MockS3Apart:
    """A mock in a process of its own."""

    def __init__(self, controls: Connection) -> None:
        self._controls = controls
        self.environment = environment_of(self._ask("port"))

    def keys(self, part: str = "") -> list[str]:
        found: list[str] = self._ask("keys", part)
        return found

    def content(self, key: str) -> bytes:
        found: bytes = self._ask("content", key)
        return found

    def ignore_conditions(self) -> None:
        self._ask("ignore_conditions")

    def grow_old(self, seconds: float) -> None:
        """Let this time pass for all objects that there are."""
        self._ask("grow_old", seconds)

    def flip(self, key: str, at: int) -> None:
        """Flip a bit of an object's byte."""
        self._ask("flip", key, at)

    def requests(self, method: str, part: str) -> int:
        """How many such requests were answered."""
        found: int = self._ask("requests", method, part)
        return found

    @contextmanager
    def holding(self, method: str, part: str, *, fails: bool = False) -> Iterator[Callable[[], None]]:
        """Hold the next such request back until the block ends; yields what waits until the request has arrived."""
        self._ask("hold", method, part, fails)

        def wait() -> None:
            assert self._ask("wait_until_held"), f"no {method} of {part} was sent"

        try:
            yield wait
        finally:
            self._ask("release")

    def _ask(self, name: str, *arguments: object) -> Any:
        self._controls.send((name, arguments))
        return self._controls.recv()


@contextmanager
def mock_s3_apart() -> Iterator[MockS3Apart]:
    """A mock in a process of its own, which serves until the block ends."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve_apart, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield MockS3Apart(ours)
    finally:
        ours.close()
        process.join()


def _serve_apart(controls: Connection) -> None:
    with mock_s3() as mock:
        does = _Controls(mock)
        while True:
            try:
                name, arguments = controls.recv()
            except EOFError:
                return
            controls.send(getattr(does, name)(*arguments))


class _Handler(BaseHTTPRequestHandler):
    mock: MockS3
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None: ...

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        self.key = unquote(url.path).strip("/")
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        self.body = self._sent()
        try:
            self.mock.before(self.command, self.key)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        with self.mock.lock:
            if self.mock.refuses(self.command, self.key):
                self.fail(403, "AccessDenied")
                return
            self.mock.requests.append((self.command, self.key))
            getattr(self, f"_{self.command.lower()}")()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def _sent(self) -> bytes:
        """The body, without the chunks of HTTP and those of `aws-chunked` inside them."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            body = _dechunked(self.rfile)
        encoded = "aws-chunked" in (self.headers.get("Content-Encoding") or "")
        return _dechunked(BytesIO(body)) if encoded else body

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _found(self) -> Kept | None:
        found = self.mock.objects.get(self.key)
        if found is None:
            self.fail(404, "NoSuchKey")
        return found

    def _get(self) -> None:
        if "list-type" in self.query:
            return self._list()
        found = self._found()
        if found is None:
            return None
        headers = {"ETag": found.e_tag, "Last_Modified": formatdate(found.written_s, usegmt=True)}
        wanted = self.headers.get("Range")
        if wanted is None:
            return self.answer(200, found.content, **headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if not first:  # the last bytes
            first, last = str(max(0, len(found.content) - int(last))), ""
        begin, end = int(first), min(int(last or len(found.content)), len(found.content) - 1)
        span = f"bytes {begin}-{end}/{len(found.content)}"
        return self.answer(206, found.content[begin : end + 1], Content_Range=span, **headers)

    def _head(self) -> None:
        found = self._found()
        if found is not None:
            modified = formatdate(found.written_s, usegmt=True)
            self.send_response(200)
            for name, value in (("ETag", found.e_tag), ("Last-Modified", modified)):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()

    def _put(self) -> None:
        if "uploadId" in self.query:
            self.mock.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = self.body
            return self.answer(200, ETag=Kept(self.body).e_tag)
        there = self.mock.objects.get(self.key)
        wanted, none = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if not self.mock.ignores_conditions:
            if none == "*" and there is not None:
                return self.fail(412, "PreconditionFailed")
            if wanted is not None and there is None:
                return self.fail(404, "NoSuchKey")
            if wanted is not None and there is not None and there.e_tag != wanted:
                return self.fail(412, "PreconditionFailed")
        return self._keep(self.body)

    def _keep(self, content: bytes) -> None:
        self.mock.objects[self.key] = kept = Kept(content)
        self.answer(200, ETag=kept.e_tag)

    def _post(self) -> None:
        if "uploads" in self.query:
            upload = str(len(self.mock.uploads))
            self.mock.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self.answer(200, text.encode())
        if "delete" in self.query:
            keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", self.body.decode())]
            for key in keys:
                self.mock.objects.pop(f"{self.key}/{key}", None)
            gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return self.answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
        parts = self.mock.uploads.pop(self.query["uploadId"])
        self.mock.objects[self.key] = kept = Kept(b"".join(parts[number] for number in sorted(parts)))
        text = f"<CompleteMultipartUploadResult><ETag>{escape(kept.e_tag)}</ETag></CompleteMultipartUploadResult>"
        return self.answer(200, text.encode())

    def _delete(self) -> None:
        self.mock.objects.pop(self.key, None)
        self.answer(204)

    def _list(self) -> None:
        prefix, after = f"{self.key}/{self.query.get('prefix', '')}", self.query.get("continuation-token", "")
        after = after or f"{self.key}/{self.query.get('start-after', '')}"
        keys = [key for key in sorted(self.mock.objects) if key.startswith(prefix) and key > after]
        folders = set[str]()
        if self.query.get("delimiter"):
            folders = {_folder(key, prefix) for key in keys} - {""}
            keys = [key for key in keys if not _folder(key, prefix)]
        page, more = keys[:PAGE_OBJECTS], len(keys) > PAGE_OBJECTS
        rows = "".join(
            f"<Contents><Key>{escape(key.removeprefix(f'{self.key}/'))}</Key>"
            f"<LastModified>{_iso(self.mock.objects[key].written_s)}</LastModified>"
            f"<ETag>{escape(self.mock.objects[key].e_tag)}</ETag><Size>{len(self.mock.objects[key].content)}</Size>"
            "</Contents>"
            for key in page
        )
        rows += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder.removeprefix(f'{self.key}/'))}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        self.answer(200, text.encode(), Content_Type="application/xml")


def _folder(key: str, prefix: str) -> str:
    """The folder directly below the prefix that holds the object; empty if the prefix itself holds it."""
    inner, slash, _ = key.removeprefix(prefix).partition("/")
    return f"{prefix}{inner}/" if slash else ""


def _dechunked(file: BufferedIOBase) -> bytes:
    """The data of the chunks, up to the empty chunk and the lines that follow on it."""
    found = b""
    while size := int(file.readline().partition(b";")[0], 16):
        found += file.read(size)
        file.readline()
    while file.readline().strip():
        pass
    return found


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
