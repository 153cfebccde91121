"""A mock of S3 for tests: buckets in memory behind HTTP on loopback. It is not S3, and checks no signatures.

It has what a lake needs: put, get with a range, head, delete of several objects, listing in pages, uploads in parts,
and the conditions If-Match and If-None-Match on put, which it decides one request at a time as S3 does. A test can look
into `objects`, change them, set their age, hold a request back or refuse it, and make the mock ignore conditions, as
some imitations of S3 do.
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
from typing import Final
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
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "mock",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "AWS_REGION": "us-east-1",
        }

    def keys(self, part: str = "") -> list[str]:
        return sorted(key for key in self.objects if part in key)


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
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.mock.before(self.command, self.key)
        with self.mock.lock:
            if self.mock.refuses(self.command, self.key):
                self.fail(403, "AccessDenied")
                return
            self.mock.requests.append((self.command, self.key))
            getattr(self, f"_{self.command.lower()}")()

    do_GET = do_HEAD = do_PUT = do_POST = handle_any

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

    def _list(self) -> None:
        prefix, after = f"{self.key}/{self.query.get('prefix', '')}", self.query.get("continuation-token", "")
        keys = [key for key in sorted(self.mock.objects) if key.startswith(prefix) and key > after]
        page, more = keys[:PAGE_OBJECTS], len(keys) > PAGE_OBJECTS
        rows = "".join(
            f"<Contents><Key>{escape(key.removeprefix(f'{self.key}/'))}</Key>"
            f"<LastModified>{_iso(self.mock.objects[key].written_s)}</LastModified>"
            f"<ETag>{escape(self.mock.objects[key].e_tag)}</ETag><Size>{len(self.mock.objects[key].content)}</Size>"
            "</Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        self.answer(200, text.encode(), Content_Type="application/xml")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
