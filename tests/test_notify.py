from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from vfl_node.process.notify import Watchdog, notify


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """In place of a service manager."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return heard


def test_the_service_manager_is_told(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with manager:
        notify("READY=1", "STATUS=up")
        assert manager.recv(100) == b"READY=1\nSTATUS=up"
        for nowhere in ("", "relative", "/none/there"):  # no service manager, or none that listens: nothing happens
            monkeypatch.setenv("NOTIFY_SOCKET", nowhere)
            notify("READY=1")
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_a_name_without_a_file_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"vfl-notify-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0{name}")
        notify("READY=1")
        assert heard.recv(100) == b"READY=1"


def test_there_is_no_sign_of_life_once_the_main_loop_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    watchdog = Watchdog(told.append)
    alive = []
    for seconds in (0, 29, 1, 100):
        now[0] += seconds
        alive.append(watchdog.look())
    watchdog.tick()
    assert alive == [True, True, False, False]
    assert watchdog.look()
    assert told == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(("usec", "pid"), [("", ""), ("soon", ""), ("60000000", "1")])
def test_nothing_ticks_where_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch, usec: str, pid: str) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    watchdog = Watchdog([].append)
    watchdog.start()
    assert watchdog.look() is False
    watchdog.stop()
