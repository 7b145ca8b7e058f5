from __future__ import annotations

import http.client
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.node.client import Client, _OverSocket
from vfl_node.web import app, connections, waiting
from vfl_node.web.app import create_app
from vfl_node.web.server import Server

HANG = threading.Event()
HANGS = threading.Semaphore(0)


def answer(request: Any) -> PlainTextResponse:
    return PlainTextResponse("here")


def hang(request: Any) -> PlainTextResponse:
    HANGS.release()
    HANG.wait(20)
    return PlainTextResponse("late")


APP = Starlette(routes=[Route("/", answer), Route("/hang", hang)])


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(APP, "127.0.0.1", 0)
    running.start()
    yield running
    running.stop()


def get(port: int, path: str = "/", *, host: str = "127.0.0.1") -> tuple[int, bytes, dict[str, str]]:
    with closing(http.client.HTTPConnection(host, port, timeout=240)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(), {name.lower(): value for name, value in response.getheaders()}


def test_it_answers_on_the_port_the_system_chose_and_names_no_server(server: Server) -> None:
    assert server.port > 0
    status, body, headers = get(server.port)
    assert (status, body) == (200, b"here")
    assert "server" not in headers


def test_a_port_in_use_is_a_usage_error(server: Server) -> None:
    second = Server(APP, "127.0.0.1", server.port)
    with pytest.raises(UsageError, match=str(server.port)) as caught:
        second.start()
    assert caught.value.code == "E_PORT"
    assert caught.value.hint
    second.stop()
    assert get(server.port)[0] == 200


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 70000), ("no.such.host.invalid", 0)])
def test_an_address_that_is_not_ours_is_a_usage_error(host: str, port: int) -> None:
    with pytest.raises(UsageError) as caught:
        Server(APP, host, port).start()
    assert caught.value.code == "E_PORT"


def test_after_stop_the_port_is_free_and_the_thread_gone(server: Server) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    assert "http" in threads
    with closing(socket.create_connection(("127.0.0.1", server.port))):  # an idle keep-alive connection does not hold it up
        server.stop()
    assert "http" not in {thread.name for thread in threading.enumerate()}
    again = Server(APP, "127.0.0.1", server.port)
    again.start()
    assert get(again.port)[0] == 200
    again.stop()
    again.stop()


def test_a_request_that_hangs_does_not_hold_up_the_stop(server: Server) -> None:
    HANG.clear()
    with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        connection.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server.stop()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=2)
    HANG.set()


def test_signal_handlers_are_left_alone() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    running = Server(APP, "127.0.0.1", 0)
    running.start()
    during = {number: signal.getsignal(number) for number in before}
    running.stop()
    assert during == before == {number: signal.getsignal(number) for number in before}


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_serves_over_ipv6() -> None:
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    running = Server(APP, "::1", 0)
    running.start()
    assert get(running.port, host="::1")[0] == 200
    running.stop()


def half_open(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    return connection


def test_half_open_requests_keep_nobody_out(server: Server, tmp_path: Path) -> None:
    """800 of them, and the port and the owner's socket answer; no more than the bound stay."""
    own = Server(APP, tmp_path / "owner.sock")
    own.start()
    try:
        with ExitStack() as stack:
            many = [stack.enter_context(closing(half_open(server.port))) for _ in range(800)]
            assert get(server.port)[0] == 200
            assert over(tmp_path / "owner.sock") == 200
            assert sum(1 for connection in many if is_open(connection)) <= connections.MOST_PER_ADDRESS
            assert get(server.port)[0] == 200
    finally:
        own.stop()
    assert not (tmp_path / "owner.sock").exists()


def test_a_request_under_way_is_not_what_makes_room(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_PER_ADDRESS", 3)
    HANG.clear()
    while HANGS.acquire(blocking=False):
        pass
    with ExitStack() as stack:
        hanging = [stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port)))) for _ in range(3)]
        for connection in hanging:
            connection.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.settimeout(10)
        for _ in hanging:
            assert HANGS.acquire(timeout=10)
        late = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), timeout=10)))
        assert late.recv(1) == b""  # all places are taken by requests under way
        HANG.set()
        for connection in hanging:
            assert connection.recv(15).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"])
def test_a_head_that_does_not_end_in_time_ends_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Also the next one of a connection that was answered once."""
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=10)) as connection:
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            while connection.recv(1000):
                pass


def test_the_owners_socket_is_for_its_user_only_wherever_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)  # a socket's address has 108 bytes
    folder.mkdir()
    path = folder / "owner.sock"
    path.write_text("of a node that was killed")
    before = os.umask(0)
    running = Server(APP, path)
    try:
        running.start()
    finally:
        os.umask(before)
    try:
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert path.stat().st_mode & 0o777 == 0o600
        assert over(path) == 200
        with pytest.raises(UsageError, match="no node answers") as caught:
            Client("", owners=folder / "none.sock").health()
        assert caught.value.code == "E_NOT_RUNNING"
    finally:
        running.stop()
    with pytest.raises(UsageError) as caught:
        Server(APP, tmp_path / "nowhere" / "owner.sock").start()
    assert caught.value.code == "E_PORT"


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def over(path: Path) -> int:
    """The status of the answer that a client of the owner's socket gets."""
    with closing(_OverSocket(path)) as connection:
        connection.request("GET", "/")
        return connection.getresponse().status


class Waits:
    """A node with one job, whose predictions never come."""

    def __init__(self) -> None:
        self.withdrawn, self.listened = threading.Event(), threading.Event()

    def job(self, job_id: str) -> dict[str, Any]:
        return {"id": job_id}

    def predict(self, model: str, request: bytes) -> Any:
        return self

    def call_when_over(self, listener: Callable[[], None]) -> None:
        self.listener = listener
        self.listened.set()

    def ready(self) -> bytes:
        return b"id,probability\n"

    def withdraw(self) -> None:
        self.withdrawn.set()


def test_who_hangs_up_withdraws_a_request() -> None:
    view = Waits()
    running = Server(create_app(view, token="t"), "127.0.0.1", 0)  # type: ignore[arg-type]
    running.start()
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=240)) as connection:
            connection.request("POST", "/api/jobs/a/predictions", body=b"id\n1\n", headers={"Authorization": "Bearer t"})
            assert not view.withdrawn.wait(0.3)
        assert view.withdrawn.wait(240)
    finally:
        running.stop()


def test_an_answer_wakes_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again and again: with the clock at rest the request still ends, once somebody else says that it is over."""
    monkeypatch.setattr(waiting, "LOOK_S", None)  # as long as it takes
    view = Waits()
    running = Server(create_app(view, token="t"), "127.0.0.1", 0)  # type: ignore[arg-type]
    running.start()
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=240)) as connection:
            connection.request("POST", "/api/jobs/a/predictions", body=b"id\n1\n", headers={"Authorization": "Bearer t"})
            assert view.listened.wait(240)
            view.listener()
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"id,probability\n")
    finally:
        running.stop()
    assert not view.withdrawn.is_set()


def test_who_waits_with_a_token_that_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 0.01)
    monkeypatch.setattr(waiting, "may_still", lambda request: not revoked.is_set())
    view, revoked = Waits(), threading.Event()
    running = Server(create_app(view, token="t"), "127.0.0.1", 0)  # type: ignore[arg-type]
    running.start()
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=240)) as connection:
            connection.request("POST", "/api/jobs/a/predictions", body=b"id\n1\n", headers={"Authorization": "Bearer t"})
            assert view.listened.wait(240)
            revoked.set()
            assert connection.getresponse().status == 401
    finally:
        running.stop()
    assert view.withdrawn.is_set()


UNFINISHED = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nhalf"


def test_requests_whose_body_never_ends_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no credentials; the most silent one makes room, and whoever hangs up is no defect of the node."""
    monkeypatch.setattr(connections, "MOST_PER_ADDRESS", 4)
    defects: list[str] = []
    monkeypatch.setattr(app.log, "error", lambda event, **_: defects.append(event))
    running = Server(create_app(Waits(), token="t"), "127.0.0.1", 0)  # type: ignore[arg-type]
    running.start()
    state = running._server.server_state

    def heard() -> int:
        return max(connection._heard for connection in list(state.connections))  # type: ignore[union-attr]

    try:
        with ExitStack() as stack:
            many = []
            for _ in range(4):
                many.append(stack.enter_context(closing(socket.create_connection(("127.0.0.1", running.port), timeout=10))))
                many[-1].sendall(UNFINISHED)
            while len(state.tasks) < 4:
                time.sleep(0.001)  # all have begun
            latest = heard()
            many[0].sendall(b"more")  # so the second is the most silent one, now
            while heard() == latest:
                time.sleep(0.001)
            status, body, _ = get(running.port, "/login")
            assert (status, b"<html" in body) == (200, True)
            assert [is_open(connection) for connection in many] == [True, False, True, True]
            assert get(running.port, "/login")[0] == 200
        while state.tasks:
            time.sleep(0.001)  # the others hang up
    finally:
        running.stop()
    assert defects == []


def test_an_answer_that_nobody_reads_ends_and_one_that_is_read_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_S", 0.5)
    ended = threading.Event()

    async def pour() -> AsyncIterator[bytes]:
        try:
            for _ in range(400):
                yield bytes(1 << 16)
        finally:
            ended.set()

    running = Server(Starlette(routes=[Route("/", lambda request: StreamingResponse(pour()))]), "127.0.0.1", 0)
    running.start()
    try:
        with closing(socket.create_connection(("127.0.0.1", running.port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert ended.wait(60)
        status, body, _ = get(running.port)
        assert (status, len(body)) == (200, 400 << 16)
    finally:
        running.stop()
