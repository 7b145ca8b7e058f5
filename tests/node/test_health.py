"""Whether a node lives, is ready, and what its owner should see to."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from vfl_node.errors import UsageError
from vfl_node.node import health, start_check
from vfl_node.node.backup import LAST
from vfl_node.node.service import Node
from vfl_node.node.spending import counts_with
from vfl_node.node.start_check import StartCheck
from vfl_node.process.files import write_checked
from vfl_node.settings.connection import Tls

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def causes(node: Node) -> dict[str, str]:
    """Code → text of each cause."""
    return {cause["code"]: cause["text"] for cause in node.health()["causes"]}


def test_a_node_that_lacks_nothing_is_ok_and_ready(node: Node) -> None:
    found = node.health()
    assert (found["status"], found["causes"], node.list_faults(), node.find_status()) == ("ok", [], [], "ok")
    assert found["backup_age_s"] is None
    assert found["ledger"] == {"lab": {"entries": 1, "head_age_s": None}}


def test_it_says_how_old_the_last_backup_is(node: Node) -> None:
    at = datetime.now(timezone.utc) - timedelta(hours=30)
    write_checked(node.settings.state_dir / LAST, json.dumps({"at": at.isoformat()}).encode())
    assert node.health()["backup_age_s"] == pytest.approx(30 * 3600, abs=600)
    (series,) = re.findall(r"^vfl_backup_age_seconds (.*)$", node.metrics_text().decode(), re.MULTILINE)
    assert float(series) == pytest.approx(30 * 3600, abs=600)
    (node.settings.state_dir / LAST).write_bytes(b"damaged")
    assert node.health()["backup_age_s"] is None


def test_it_lives_while_its_main_loop_goes_round(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.tick()
    assert node.is_live()
    now = time.monotonic()
    monkeypatch.setattr(health.time, "monotonic", lambda: now + health.TICK_S + 1)
    assert not node.is_live()
    node.tick()
    assert node.is_live()


def _lose_state(node: Node) -> None:
    shutil.move(node.settings.state_dir, node.settings.state_dir.with_name("elsewhere"))


def _close_index(node: Node) -> None:
    node._store._index.close()


def _refuse_writing(node: Node) -> None:
    shutil.rmtree(node._store.requests)


def _damage_ledger(node: Node) -> None:
    path = counts_with(node.settings, "lab").lane.path
    path.write_bytes(path.read_bytes().replace(b"note", b"nope"))


def _remove_ledger(node: Node) -> None:
    _ = counts_with(node.settings, "lab").lane.entries
    counts_with(node.settings, "lab").lane.path.unlink()


@pytest.mark.parametrize(
    ("injure", "code"),
    [
        (_lose_state, "E_STATE_LOST"),
        (_close_index, "E_STATE"),
        (_refuse_writing, "E_STATE"),
        (_damage_ledger, "E_STATE_CORRUPT"),
        (_remove_ledger, "E_STATE_CORRUPT"),
    ],
)
def test_what_keeps_it_from_any_job_is_a_fault(node: Node, injure: Callable[[Node], None], code: str) -> None:
    assert node.list_faults() == []
    injure(node)
    assert node.list_faults() == [code]
    found = node._health.describe()
    assert found["status"] == node.find_status() == "failing"
    assert [(cause["code"], bool(cause["text"]), bool(cause["hint"])) for cause in found["causes"]] == [(code, True, True)]
    if injure is _close_index:
        node._store._index._db = sqlite3.connect(":memory:")  # for the end of the test


def test_a_full_disk_is_one_and_no_probe_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FULL

    with monkeypatch.context() as patched:
        patched.setattr(health.os, "write", refuse)
        assert node.list_faults() == ["E_DISK_FULL"]
    assert list(node._store.requests.iterdir()) == []
    assert node.list_faults() == []


def test_an_expired_certificate_is_one(node: Node) -> None:
    class Watch:
        fault, days = "this node's certificate expired on 2026-03-01 10:00 UTC", -1

    node.peers.certificates = Watch()  # type: ignore[assignment] # as far as health asks
    assert node.list_faults() == ["E_CERTIFICATE"]
    Watch.fault, Watch.days = "", 3
    assert node.list_faults() == []
    found = node.health()
    assert (found["status"], causes(node)) == ("degraded", {"E_CERTIFICATE": "the certificate of clinic ends in 3 days"})
    assert found["certificates"] == [{"party": "clinic", "kind": "leaf", "days": 3}]
    assert "put a new certificate" in found["causes"][0]["hint"]
    tls = Tls(mode="own", ca="ca.pem", certificate="keys/clinic.crt", key="keys/clinic.key")
    node._health._settings = node.settings.model_copy(update={"tls": tls})
    assert "vfl-node renew --config FILE, which needs authority.key" in node.health()["causes"][0]["hint"]
    Watch.fault, Watch.days = "expired", -1
    assert "vfl-node renew --config FILE" in node.health()["causes"][0]["hint"]


def test_faults_are_looked_for_no_more_often_than_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_S", 3600.0)
    assert node.list_faults() == []
    _refuse_writing(node)
    assert node.list_faults() == []


def test_a_table_that_is_gone_is_a_cause_until_it_is_back(node: Node, tmp_path: Path) -> None:
    (tmp_path / "table.csv").rename(tmp_path / "away.csv")
    first = node.health()
    assert (first["status"], node.list_faults()) == ("degraded", [])
    assert causes(node) == {"E_FILE": "table default cannot be read: No such file or directory"}
    assert node.health()["causes"][0]["since"] == first["causes"][0]["since"]
    assert str(tmp_path) not in str(first["causes"])
    (tmp_path / "away.csv").rename(tmp_path / "table.csv")
    assert node.health()["status"] == "ok"


def test_a_table_that_was_mended_is_looked_at_again(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = (tmp_path / "table.csv").read_text()
    (tmp_path / "table.csv").write_text(good + "r1,1,0\n")
    tables = StartCheck(node.settings)
    tables.start()
    tables.join(240)
    assert [error["code"] for _, error in tables.list_errors()] == ["E_DUP_IDS"]
    (tmp_path / "table.csv").write_text(good)
    assert [error["code"] for _, error in tables.list_errors()] == ["E_DUP_IDS"]  # looked at a moment ago
    monkeypatch.setattr(start_check, "AGAIN_S", 0.0)
    tables.look_again()
    tables.join(240)
    assert list(tables.list_errors()) == []


def test_what_may_keep_it_from_some_jobs_is_a_cause(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(timezone.utc)
    link: dict[str, Any] = {"online": True, "cause": "", "certificate_days": 4, "clock_ahead_s": -200, "since": now.isoformat()}
    monkeypatch.setattr(node.peers, "status", lambda: {"lab": link})
    assert causes(node).keys() == {"E_CERTIFICATE", "E_CLOCK"}
    assert causes(node)["E_CLOCK"] == "the clock of lab was 200 s behind this node's when they met"
    link |= {"online": False, "cause": "refused", "certificate_days": None, "clock_ahead_s": None}
    assert causes(node) == {}  # for some minutes nobody need see to it
    link["since"] = (now - timedelta(minutes=6)).isoformat()
    assert causes(node) == {"E_PEER_ABSENT": "lab is away: refused"}
    assert node.health()["causes"][0]["since"] == link["since"]
    node.policies.fault = UsageError("policy.yaml: line 3", code="E_YAML")
    assert causes(node)["E_YAML"] == "the policy that holds is an earlier one: policy.yaml: line 3"
    monkeypatch.setattr(health, "LOW_DISK", 1 << 62)
    assert "E_DISK_FULL" in causes(node)
    assert node.health()["status"] == node.find_status() == "degraded"
