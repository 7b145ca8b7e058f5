"""A running node whose owner gives and takes tokens by the commands."""

from __future__ import annotations

import json
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import Federation, command
from tests.web.certificates import make_files


@pytest.fixture
def node(tmp_path: Path, trial: Any) -> Iterator[Federation]:
    """A clinic that runs."""
    federation = Federation(tmp_path, trial)
    federation.start("clinic", listen="127.0.0.1:0")
    yield federation
    federation.end_all()


def say(node: Federation, *words: str) -> str:
    """What a command about tokens prints."""
    ended = command("token", *words, "--config", node.folder / "clinic" / "node.yaml")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def ask(node: Federation, token: str, path: str = "/api/jobs", method: str = "GET") -> int:
    request = urllib.request.Request(f"http://{node.running('clinic')['http']}{path}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_token_comes_and_goes_without_a_restart(node: Federation) -> None:
    token = say(node, "create", "anna", "--roles", "viewer,submitter", "--days", "30")
    assert (ask(node, token), ask(node, token, "/api/prune", "POST")) == (200, 403)
    (listed,) = json.loads(say(node, "list", "--json"))
    assert (listed["name"], listed["roles"], bool(listed["used"])) == ("anna", ["viewer", "submitter"], True)
    assert token not in say(node, "list")
    state = node.folder / "clinic" / "state"
    assert stat.S_IMODE((state / "tokens").stat().st_mode) == 0o600
    say(node, "revoke", "anna")
    began = time.monotonic()
    assert ask(node, token) == 401
    assert time.monotonic() - began < 1
    assert token not in node.log("clinic")
    config = node.folder / "clinic" / "node.yaml"
    lines = [json.loads(line) for line in command("audit-log", "--json", "--config", config).stdout.splitlines()]
    told = [(line["person"], line["how"], line["method"], line["route"], line["object"], line["result"]) for line in lines]
    assert told[:2] == [
        ("owner", "socket", "POST", "/api/tokens", "anna", 201),
        ("anna", "token", "POST", "/api/prune", "", 403),
    ]
    assert ("owner", "socket", "DELETE", "/api/tokens/{name}", "anna", 200) in told
    assert ("", "", "GET", "/api/jobs", "", 401) in told
    log = state / "audit.log"
    assert (stat.S_IMODE(log.stat().st_mode), token in log.read_text()) == (0o600, False)
    whole = command("audit-log", "--verify", "--config", config)
    assert (whole.returncode, "lines are as they were written" in whole.stdout) == (0, True)
    log.write_text(log.read_text().replace("anna", "ben", 1))
    changed = command("audit-log", "--verify", "--config", config)
    assert (changed.returncode, changed.stdout.strip()) == (3, "audit.log, line 1: it is not what was written")


def test_what_a_node_keeps_can_be_changed_while_it_is_stopped(node: Federation) -> None:
    token = say(node, "create", "anna", "--roles", "viewer")
    node.kill("clinic")
    other = say(node, "create", "ben", "--roles", "admin")
    say(node, "revoke", "anna")
    node.start("clinic")
    assert (ask(node, token), ask(node, other)) == (401, 200)
    log = (node.folder / "clinic" / "state" / "audit.log").read_text()
    assert [json.loads(line)["how"] for line in log.splitlines()[:3]] == ["socket", "files", "files"]
    ended = command("token", "revoke", "anna", "--config", node.folder / "clinic" / "node.yaml")
    assert (ended.returncode, "E_UNKNOWN_PERSON" in ended.stderr) == (2, True)


def test_damaged_tokens_keep_a_node_from_starting(node: Federation) -> None:
    say(node, "create", "anna", "--roles", "viewer")
    node.kill("clinic")
    (node.folder / "clinic" / "state" / "tokens").write_bytes(b"VFLcx")
    ended = command("--role", "active", "--config", node.folder / "clinic" / "node.yaml")
    assert (ended.returncode, "E_STATE_CORRUPT" in ended.stderr) == (1, True)


def test_a_plain_port_beyond_loopback_needs_the_owners_word(node: Federation) -> None:
    node.kill("clinic")
    config = node.configure("clinic", http="0.0.0.0:0")
    ended = command("--role", "active", "--config", config)
    assert (ended.returncode, "E_PLAINTEXT" in ended.stderr, "http_tls" in ended.stderr) == (2, True, True)
    node.start("clinic", http="0.0.0.0:0", http_plain=True)
    assert "the HTTP port is plain" in node.log("clinic")


def test_a_node_serves_https(node: Federation) -> None:
    certificate, key = make_files(node.folder, "localhost")
    node.kill("clinic")
    node.start("clinic", http="0.0.0.0:0", http_tls={"certificate": str(certificate), "key": str(key)})
    assert node.running("clinic")["https"]
    port = node.running("clinic")["http"].rpartition(":")[2]
    secret = node.folder / "clinic" / "state" / "token"
    listed = command("jobs", "--node", f"https://localhost:{port}", "--token-file", secret, SSL_CERT_FILE=str(certificate))
    assert (listed.returncode, listed.stdout.strip()) == (0, "no jobs yet"), listed.stderr
    link = command("board", "--config", node.folder / "clinic" / "node.yaml").stdout
    assert link.startswith("https://0.0.0.0:")
    key.chmod(0o644)
    node.kill("clinic")
    ended = command("--role", "active", "--config", node.folder / "clinic" / "node.yaml")
    assert (ended.returncode, "E_KEY_MODE" in ended.stderr) == (2, True)
