"""A node that a service manager runs: what it tells it, and how its log is turned up and moved away meanwhile."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_node_tells_its_service_manager_and_writes_its_log_to_a_file(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, heard = tmp_path / "logs" / "lab.log", list[str]()
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(240)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "8000000")
        monkeypatch.delenv("VFL_LOG_LEVEL", raising=False)
        federation.start("lab", listen="127.0.0.1:0", peers={"clinic": {}}, log={"file": "../logs/lab.log"})
        while "WATCHDOG=1" not in heard:
            heard.append(manager.recv(1000).decode())
        assert heard[0] == "READY=1\nSTATUS=lab (passive) is up"

        def say(event: str) -> bool:
            federation.client("lab").health()  # of each request there is a line of level debug
            return any(line["event"] == event for line in lines(path))

        assert not say("request")
        path.rename(path.with_name("moved"))
        federation.processes["lab"].send_signal(signal.SIGUSR1)
        federation.wait_until(lambda: say("request"))
        assert path.stat().st_mode & 0o777 == 0o600
        assert federation.kill("lab", signal.SIGTERM) == 0
        while "STOPPING=1" not in heard:
            heard.append(manager.recv(1000).decode())
    assert "node up" in {line["event"] for line in lines(path.with_name("moved"))}
    assert {"the log has every line now", "node down"} <= {line["event"] for line in lines(path)}
    assert federation.log("lab") == ""  # nothing beside the file
