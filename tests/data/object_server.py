"""A small server that answers as S3 does: objects, ranges of them, and what is below a prefix. It checks who signs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET, KEY = "clinic-tables", "reader"


class ObjectServer(ThreadingHTTPServer):
    """Serves ``objects``: key → content, in one bucket, to whoever signs as :data:`KEY`.

    Attributes:
        objects: what is stored.
        asked: method, key and range of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.moments: dict[str, float] = {}
        self.asked: list[tuple[str, str, str]] = []

    def put(self, key: str, content: bytes, moment: float = 1.7e9) -> None:
        """Store an object, last written at this moment."""
        self.objects[key], self.moments[key] = content, moment

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving_objects() -> Iterator[ObjectServer]:
    """A server that runs."""
    server = ObjectServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def _answer(self) -> None:
        place = urlsplit(self.path)
        bucket, _, key = unquote(place.path).removeprefix("/").partition("/")
        self.server.asked.append((self.command, key, self.headers.get("Range", "")))
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            return self._refuse(403, "AccessDenied")
        if bucket != BUCKET:
            return self._refuse(404, "NoSuchBucket")
        if not key:
            return self._send(200, _listing(self.server.objects, parse_qs(place.query)), {"Content-Type": "application/xml"})
        if key not in self.server.objects:
            return self._refuse(404, "NoSuchKey")
        content, status = self.server.objects[key], 200
        headers = {"Last-Modified": formatdate(self.server.moments[key], usegmt=True), "ETag": '"x"', "Accept-Ranges": "bytes"}
        if wanted := self.headers.get("Range"):
            begin, end = (int(place) for place in wanted.removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {begin}-{min(end, len(content) - 1)}/{len(content)}"
            content, status = content[begin : end + 1], 206
        return self._send(status, content, headers)

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>canary-message</Message></Error>"
        self._send(status, text.encode(), {"Content-Type": "application/xml"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _listing(objects: dict[str, bytes], query: dict[str, list[str]]) -> bytes:
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    most = int(query.get("max-keys", ["1000"])[0])
    below = sorted(key for key in objects if key.startswith(prefix))
    folders = {
        prefix + rest.split(delimiter)[0] + delimiter
        for key in below
        if delimiter and delimiter in (rest := key[len(prefix) :])
    }
    files = [key for key in below if not any(key.startswith(folder) for folder in folders)][:most]
    parts = "".join(
        f"<Contents><Key>{key}</Key><Size>{len(objects[key])}</Size>"
        f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in files
    )
    shared = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
    count = len(files) + len(folders)
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>"
        f"<MaxKeys>{most}</MaxKeys><IsTruncated>false</IsTruncated>{parts}{shared}</ListBucketResult>"
    ).encode()
