"""https at the HTTP port: which TLS, which certificate, and how many may begin a handshake and say nothing."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.web.certificates import make_files
from tests.web.shown_node import TOKEN, View, browser
from vfl_node.errors import UsageError
from vfl_node.node.client import Client
from vfl_node.web import handshakes
from vfl_node.web.access import Access
from vfl_node.web.app import create_app
from vfl_node.web.handshakes import list_names, load_context
from vfl_node.web.server import Server


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return make_files(tmp_path, "board.example", "*.example", "localhost")


def say(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.scheme)


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture
def server(files: tuple[Path, Path]) -> Iterator[Server]:
    app = Starlette(routes=[Route("/", say), Route("/echo", echo, methods=["POST"])])
    running = Server(app, "127.0.0.1", 0, tls=load_context(*files))
    running.start()
    yield running
    running.stop()


def trust(files: tuple[Path, Path], **versions: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files[0]))
    for name, version in versions.items():
        setattr(context, name, version)
    return context


def get(port: int, context: ssl.SSLContext, path: str = "/", body: bytes | None = None) -> tuple[int, str]:
    with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=240, context=context)) as connection:
        connection.request("POST" if body else "GET", path, body=body)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_it_speaks_https_by_tls_1_3_alone(server: Server, files: tuple[Path, Path]) -> None:
    assert get(server.port, trust(files)) == (200, "https")
    assert get(server.port, trust(files), "/echo", b"x" * 3_000_000) == (200, "3000000")
    with pytest.raises(ssl.SSLError):
        get(server.port, trust(files, maximum_version=ssl.TLSVersion.TLSv1_2))
    with pytest.raises(ssl.SSLCertVerificationError):
        get(server.port, ssl.create_default_context())
    with closing(socket.create_connection(("127.0.0.1", server.port), 240)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(1000).startswith(b"HTTP")
    assert get(server.port, trust(files)) == (200, "https")


def test_a_connection_is_used_again(server: Server, files: tuple[Path, Path]) -> None:
    with closing(http.client.HTTPSConnection("127.0.0.1", server.port, timeout=240, context=trust(files))) as connection:
        for _ in range(3):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"https"


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(server: Server, files: tuple[Path, Path]) -> None:
    """What comes before HTTP has the connection is kept for it."""
    for _ in range(20):
        ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trust(files).wrap_bio(theirs, ours, server_hostname="localhost")
        with closing(socket.create_connection(("127.0.0.1", server.port), 240)) as plain:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(ours.read())
                    theirs.write(plain.recv(65536))
            tls.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            plain.sendall(ours.read())  # the end of the handshake and the request, in one piece
            answer = b""
            while b"https" not in answer:
                theirs.write(plain.recv(65536))
                with suppress(ssl.SSLWantReadError):
                    answer += tls.read(65536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_strangers_that_begin_a_handshake_and_say_nothing_keep_nobody_out(
    server: Server, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST_PER_ADDRESS", 5)
    silent = [socket.create_connection(("127.0.0.1", server.port), 240) for _ in range(20)]
    assert get(server.port, trust(files)) == (200, "https")
    ended = 0
    limit = time.monotonic() + 60
    while ended < 15 and time.monotonic() < limit:
        ended = sum(_is_over(one) for one in silent)
    assert ended >= 15
    for one in silent:
        one.close()


def _is_over(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_handshake_that_takes_too_long_ends(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HEAD_S", 0.2)
    running = Server(Starlette(routes=[Route("/", say)]), "127.0.0.1", 0, tls=load_context(*files))
    running.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", running.port), 60)) as silent:
            assert silent.recv(1) == b""
        assert get(running.port, trust(files)) == (200, "https")
    finally:
        running.stop()


def test_a_stop_waits_for_no_handshake(files: tuple[Path, Path]) -> None:
    running = Server(Starlette(), "127.0.0.1", 0, tls=load_context(*files))
    running.start()
    with closing(socket.create_connection(("127.0.0.1", running.port), 60)):
        began = time.monotonic()
        running.stop()
        assert time.monotonic() - began < 10


def test_names_of_the_certificate_are_answered_to(files: tuple[Path, Path]) -> None:
    assert list_names(files[0]) == ["board.example", "localhost"]


def test_files_that_make_no_https(files: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_files(_folder(tmp_path / "other"))
    (tmp_path / "no.pem").write_text("no certificate")
    for certificate, key, code in (
        (tmp_path / "none", files[1], "E_FILE"),
        (files[0], tmp_path / "none", "E_FILE"),
        (files[0], other[1], "E_CERTIFICATE"),
        (tmp_path / "no.pem", files[1], "E_CERTIFICATE"),
    ):
        with pytest.raises(UsageError) as caught:
            load_context(certificate, key)
        assert caught.value.code == code
    files[1].chmod(0o644)
    with pytest.raises(UsageError) as caught:
        load_context(*files)
    assert caught.value.code == "E_KEY_MODE"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_a_cookie_of_https_is_sent_over_https_alone(view: View, scheme: str, secure: bool) -> None:
    access = Access(TOKEN)
    client = browser(view, token=access, headers={}, base_url=f"{scheme}://127.0.0.1:8080")
    answer = client.post("/login", content=access.ticket())
    assert ("; Secure" in answer.headers["set-cookie"]) is secure


def test_the_command_line_speaks_https(view: View, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running = Server(create_app(view, token=TOKEN), "127.0.0.1", 0, tls=load_context(*files))  # type: ignore[arg-type]
    running.start()
    try:
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        client = Client(f"127.0.0.1:{running.port}", TOKEN, https=True)
        assert client.health()["party"] == "clinic"
        assert client.link().startswith(f"https://127.0.0.1:{running.port}/login#ticket=")
        assert client.predict("done-1", b"id\na\n", lambda: None) == b"id,probability\na,0.5\n"
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(UsageError, match="certificate verify failed"):
            client.health()
    finally:
        running.stop()
