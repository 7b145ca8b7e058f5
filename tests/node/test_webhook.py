"""A program of the owner hears that a job asks, was approved and has ended: signed, and nothing of the job."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.node.test_approvals import JOB, Lab, manifest
from vfl_node.errors import UsageError
from vfl_node.node import webhook
from vfl_node.node.endings import conclude
from vfl_node.node.webhook import SIGNATURE, WebhookSender
from vfl_node.node.work import Work
from vfl_node.settings.connection import Webhook

SECRET = b"shared with the program"


class Program(HTTPServer):
    """Keeps what it was sent; answers with the next of ``statuses``, at last 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Told)
        self.told: list[tuple[bytes, str]] = []
        self.statuses: list[int] = []
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, 30), self.told
            return [json.loads(body) for body, _ in self.told]


class Told(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        program = self.server
        assert isinstance(program, Program)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(program.statuses.pop(0) if program.statuses else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        with program.changed:
            program.told.append((body, self.headers[SIGNATURE]))
            program.changed.notify_all()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def lab(tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(Work, "start", lambda work: None)
    monkeypatch.setattr(webhook, "PAUSE_S", 0.05)
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    lab = Lab(tmp_path)
    events = ["asked", "approved", "ended"]
    hook = {"url": f"http://127.0.0.1:{program.server_port}/told", "secret_file": str(tmp_path / "secret"), "events": events}
    lab.configure(policy={}, webhook=hook, http="127.0.0.1:8081")
    sender = WebhookSender(lab.settings, lab.store)
    sender.start()
    yield lab
    sender.stop()
    lab.store.close()


def test_what_happens_is_told_signed_and_without_contents(lab: Lab, program: Program) -> None:
    asked = manifest()
    lab.offered(asked)
    (first,) = program.wait_for(1)
    assert first.pop("at")
    assert first == {
        "event": "asked",
        "job_id": "weekly-1",
        "partner": "clinic",
        "digest": asked.digest,
        "link": "http://127.0.0.1:8081/jobs/weekly-1",
    }
    lab.approvals.approve("weekly-1", asked.digest)
    assert [each["event"] for each in program.wait_for(2)] == ["asked", "approved"]
    lab.offered(manifest(job_id="weekly-2"))
    program.wait_for(3)
    lab.approvals.refuse("weekly-2", "data")
    assert [(each["event"], each["job_id"]) for each in program.wait_for(4)[2:]] == [
        ("asked", "weekly-2"),
        ("ended", "weekly-2"),
    ]
    for body, signature in program.told:
        assert signature == f"sha256={hmac.new(SECRET, body, 'sha256').hexdigest()}"


def test_a_job_that_comes_and_ends_at_once_is_told_whole_and_once(lab: Lab, program: Program) -> None:
    asked = manifest()
    lab.offered(asked)
    lab.approvals.approve("weekly-1", asked.digest)
    ended = conclude(lab.settings, lab.store, replace(lab.store.record("weekly-1"), state="done"))
    lab.store.keep_figures({ended: "{}"})  # a list was looked at
    lab.store.end(ended)
    by_rule = lab.store.update(lab.store.add(JOB, submitter="bank", job_id="weekly-2"), state="running")
    peer_lost = lab.store.update(by_rule, state="failed", code="E_PEER_LOST")  # it may go on
    conclude(lab.settings, lab.store, replace(peer_lost, state="cancelled", code="E_CANCELLED"))
    told = [(each["event"], each["job_id"]) for each in program.wait_for(4)]
    assert told == [("asked", "weekly-1"), ("approved", "weekly-1"), ("ended", "weekly-1"), ("ended", "weekly-2")]


def test_what_waits_is_told_again_after_a_restart_and_nothing_else(lab: Lab, program: Program) -> None:
    for number in range(1, 4):
        lab.offered(manifest(job_id=f"weekly-{number}"))
    lab.approvals.refuse("weekly-2", "data")
    program.wait_for(4)
    again = WebhookSender(lab.settings, lab.store)
    again.start()
    try:
        told = [(each["event"], each["job_id"]) for each in program.wait_for(6)]
        assert told[4:] == [("asked", "weekly-1"), ("asked", "weekly-3")]
    finally:
        again.stop()


def test_it_tries_three_times_and_follows_no_redirection(lab: Lab, program: Program) -> None:
    program.statuses = [500, 302, 503]
    lab.offered(manifest())
    assert [each["job_id"] for each in program.wait_for(3)] == ["weekly-1"] * 3
    lab.offered(manifest(job_id="weekly-2"))
    assert [each["job_id"] for each in program.wait_for(4)[3:]] == ["weekly-2"]  # and not a fourth time


def test_a_program_that_is_away_keeps_the_node_from_nothing(lab: Lab, program: Program) -> None:
    program.shutdown()
    program.server_close()
    lab.offered(manifest())
    lab.approvals.approve("weekly-1", lab.approvals.show("weekly-1")["digest"])
    assert lab.state() == "waiting"


@pytest.mark.parametrize(("secret", "code"), [(b"\n", "E_CONFIG"), (b"x" * 15 + b"\n", "E_CONFIG"), (None, "E_FILE")])
def test_a_node_does_not_start_with_a_secret_that_signs_nothing(
    lab: Lab, tmp_path: Path, secret: bytes | None, code: str
) -> None:
    (tmp_path / "secret").unlink()
    if secret is not None:
        (tmp_path / "secret").write_bytes(secret)
    with pytest.raises(UsageError, match=r"webhook\.secret_file") as caught:
        WebhookSender(lab.settings, lab.store)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "url", ["http://elsewhere.example/told", "ftp://127.0.0.1/x", "https://user@host/x", "https://host/ x"]
)
def test_only_https_or_this_machine_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        Webhook(url=url, secret_file=Path("secret"))
