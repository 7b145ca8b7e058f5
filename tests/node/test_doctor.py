"""vfl-node doctor on a node's own machine: each check where all is well and where it is not, and the form for programs."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.node.indexes import written_by_a_newer_release
from tests.node.nodes import command
from tests.trust.test_kept import Own
from vfl_node.configuration.models import parse
from vfl_node.errors import StateError, UsageError
from vfl_node.job import Job
from vfl_node.node.backup import note
from vfl_node.node.doctor import machine, own, past
from vfl_node.node.doctor.examine import examine
from vfl_node.node.doctor.finding import CHECKS, Finding, fail, guarded, ok, skip, warn, worst
from vfl_node.node.doctor.need import JobNeed, need_of_job, need_of_rows
from vfl_node.node.doctor.workers import check_workers
from vfl_node.node.index import VERSION, Index
from vfl_node.node.running import announce
from vfl_node.settings.engine import EngineSettings
from vfl_node.settings.node import Settings
from vfl_node.trust.lanes import FILE, Lane
from vfl_node.trust.signers import Signers

TABLE = "id,age,label\n" + "".join(f"{number},{20 + number % 60},{number % 2}\n" for number in range(200))
JOB = "name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psu}\n"


class Clinic(Own):
    """A clinic's folder, with a table and a peer that dials in."""

    def __init__(self, folder: Path) -> None:
        super().__init__("clinic", folder)
        (folder / "table.csv").write_text(TABLE)
        self.change(data={"path": "table.csv"}, http=None)

    def change(self, **settings: Any) -> Settings:
        self.config.write_text(yaml.safe_dump(yaml.safe_load(self.config.read_text()) | settings))
        return self.settings

    @property
    def state(self) -> Path:
        folder = self.settings.state_dir
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    return Clinic(tmp_path / "clinic")


def is_(found: Finding, status: str, text: str) -> None:
    """Whether a check has found this; what is not well has one thing to do."""
    assert (found.status, text in found.text) == (status, True), found
    assert found.hint or status in ("ok", "skipped")


# 1: settings, policy, people.


def test_settings_that_hold_are_named_with_their_preset(clinic: Clinic) -> None:
    settings, found = own.check_settings(clinic.config)
    is_(found, "warn", "preset careful")
    assert settings
    assert "no job can run" in found.text  # without a peer
    announced = clinic.change(tls=None, insecure_loopback=True, listen="127.0.0.1:1", peers={"lab": {}})
    assert announced.peers
    is_(own.check_settings(clinic.config)[1], "ok", "peers: 1")


@pytest.mark.parametrize("spoil", ["key", "policy", "tokens"])
def test_settings_that_cannot_be_used_are_named_with_their_place(clinic: Clinic, spoil: str) -> None:
    if spoil == "key":
        clinic.config.write_text(clinic.config.read_text() + "tresholds: 3\n")
    elif spoil == "policy":
        (clinic.config.parent / "policy.yaml").write_text("version: 1\npreset: loose\n")
    else:
        (clinic.state / "tokens").write_text("spoilt")
    settings, found = own.check_settings(clinic.config)
    is_(found, "FAIL", {"key": "tresholds", "policy": "preset", "tokens": "tokens"}[spoil])
    assert (settings is None) is (spoil != "tokens")


def test_a_file_that_is_not_there_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        own.check_settings(tmp_path / "node.yaml")


# 2: keys and state.


def test_a_private_folder_on_a_disk_that_locks_is_well(clinic: Clinic) -> None:
    assert clinic.state
    is_(own.check_state(clinic.settings), "ok", "locks, and a durable write takes")
    assert list(clinic.state.iterdir()) == []  # it leaves nothing


@pytest.mark.parametrize("spoil", ["open key", "open folder", "remote", "no locks", "full", "slow"])
def test_what_is_wrong_with_keys_and_state_is_named(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    settings = clinic.settings
    assert settings.tls
    assert clinic.state
    if spoil == "open key":
        settings.tls.key.chmod(0o644)
        is_(guarded(2, lambda: own.check_state(settings)), "FAIL", "E_KEY_MODE")
        return
    if spoil == "open folder":
        settings.state_dir.chmod(0o755)
    elif spoil == "remote":
        monkeypatch.setattr(own, "file_system", lambda folder: "nfs4")
    elif spoil == "no locks":
        monkeypatch.setattr(own.fcntl, "flock", lambda *_: None)
    elif spoil == "full":
        monkeypatch.setattr(own.os, "fsync", lambda descriptor: os.write(-1, b""))
    else:
        monkeypatch.setattr(own, "SLOW_WRITE_MS", 0.0)
    said = {
        "open folder": "0755",
        "remote": "on another machine (nfs4)",
        "no locks": "two processes",
        "full": "cannot be",
        "slow": "takes",
    }
    is_(own.check_state(settings), "warn" if spoil == "slow" else "FAIL", said[spoil])


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / {tmp_path} rw - nfs4 host:/x rw\n"
        f"3 1 0:5 / {tmp_path}else rw - tmpfs none rw\n"
    )
    assert own.file_system(tmp_path / "state", mounts) == "nfs4"
    assert own.file_system(tmp_path.parent, mounts) == "ext4"
    assert own.file_system(tmp_path, tmp_path / "none") == ""


# 3: certificate, card, revocation lists.


def test_a_certificate_that_holds_is_shown_with_its_days_and_key(clinic: Clinic) -> None:
    credentials, found = own.check_certificate(clinic.settings)
    is_(found, "ok", "ECDSA secp256r1) holds for 89 days")
    assert credentials
    assert found.figures["card"] == 1


@pytest.mark.parametrize("spoil", ["expired", "soon", "card", "gone"])
def test_a_certificate_that_does_not_hold_is_named(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    settings = clinic.settings
    assert settings.tls
    if spoil == "soon":
        monkeypatch.setattr(own, "WARN_BEFORE", timedelta(days=91))
        is_(own.check_certificate(settings)[1], "warn", "holds for 89 days")
        return
    if spoil == "expired":
        later = datetime.now(timezone.utc) + timedelta(days=100)
        load = own.load_credentials
        monkeypatch.setattr(own, "load_credentials", lambda *given, **named: load(*given, now=later, **named))
    elif spoil == "card":
        settings.tls.card.write_text(settings.tls.card.read_text().replace("1", "2"))
    else:
        settings.tls.certificate.unlink()
    credentials, found = own.check_certificate(settings)
    is_(found, "FAIL", {"expired": "expired on", "card": "E_", "gone": "node.crt"}[spoil])
    assert credentials is None


def test_plaintext_has_no_certificate(clinic: Clinic) -> None:
    settings = clinic.change(tls=None, insecure_loopback=True, listen="127.0.0.1:1", peers={"lab": {}})
    is_(own.check_certificate(settings)[1], "skipped", "plaintext")


# 15: data.


def test_a_table_that_can_be_used_is_counted(clinic: Clinic) -> None:
    found = past.check_data(clinic.settings, None, 60)
    assert found.status in ("ok", "warn"), found
    assert "E_" not in found.text


def test_a_table_that_cannot_be_used_and_one_that_takes_too_long_are_named(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clinic.config.parent / "table.csv").write_text("id,label\n1,0\n1,0\n")
    is_(past.check_data(clinic.settings, None, 60), "FAIL", "(E_")
    monkeypatch.setattr(past.threading.Thread, "join", lambda self, timeout=None: None)
    monkeypatch.setattr(past.threading.Thread, "start", lambda self: None)
    is_(past.check_data(clinic.settings, None, 1), "skipped", "not read to its end within 1 s")


# 16 to 18: the machine.


def test_a_disk_is_compared_with_what_the_job_takes(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, mebibyte = clinic.settings, 1 << 20
    need = need_of_rows(settings, "lab", 10**6, 10**6, 0)
    assert need.disk_bytes > 100 * mebibyte
    disk = SimpleNamespace(f_frsize=mebibyte, f_files=10**6)
    monkeypatch.setattr(machine.os, "statvfs", lambda folder: disk)
    needed = 1.2 * need.disk_bytes / mebibyte
    for free, inodes, status, text in (
        (3 * needed, 10**6, "ok", "rows by psu"),
        (1.5 * needed, 10**6, "warn", "MiB free"),
        (0.9 * needed, 10**6, "FAIL", "MiB free"),
        (3 * needed, 50, "warn", "room for 50 files"),
        (3 * needed, 0, "FAIL", "room for 0 files"),
    ):
        disk.f_bavail, disk.f_favail = free, inodes
        is_(machine.check_disk(settings, need), status, text)
    disk.f_bavail, disk.f_favail = 8, 10**6
    is_(machine.check_disk(settings, JobNeed(settings)), "FAIL", "8 MiB free")


def test_memory_is_compared_with_what_the_job_takes(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    need = need_of_rows(clinic.settings, "lab", 10**6, 10**6, 1 << 20)
    for share, status in ((2.0, "ok"), (1.2, "warn"), (0.9, "FAIL")):
        monkeypatch.setattr(machine, "free_bytes", lambda share=share: share * need.memory_bytes)
        is_(machine.check_memory(clinic.settings, need), status, "kernel")
    monkeypatch.setattr(machine, "free_bytes", lambda: float("inf"))
    is_(machine.check_memory(clinic.settings, need), "warn", "does not tell")
    limited = clinic.change(resources={"memory_mib": 1})
    is_(machine.check_memory(limited, need), "FAIL", "1 MiB of memory free")


def test_cores_that_others_take_are_named(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "stolen_share", lambda: 0.5)
    is_(machine.check_memory(clinic.settings, JobNeed(clinic.settings)), "warn", "other machines take 50 %")


def test_a_steal_is_read_from_what_the_system_counts(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1 2 3\n")
    assert machine._ticks(tmp_path) == (10, 100)
    assert machine.stolen_share(tmp_path, 0) is None  # no tick has passed
    assert machine._ticks(tmp_path / "none") is None


def test_a_share_is_that_of_the_time_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iter([(0, 100), (30, 200)])
    monkeypatch.setattr(machine, "_ticks", lambda proc: next(reads))
    assert machine.stolen_share(seconds=0) == 0.3


def test_open_files_are_those_of_the_running_node_or_of_this_user(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = clinic.settings
    wanted = machine.check_files(settings).figures["wanted"]
    assert wanted == settings.streams_per_party + machine.OPEN_FILES + 16
    for limit, status in ((10 * wanted, "ok"), (wanted + 1, "warn"), (64, "FAIL")):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        is_(machine.check_files(settings), status, "this user's processes")
    announce(clinic.state, listen=None, http=None)
    proc = clinic.config.parent / "proc"
    (proc / str(os.getpid())).mkdir(parents=True)
    (proc / str(os.getpid()) / "limits").write_text(f"Max open files            {3 * wanted}   4096   files\n")
    is_(machine.check_files(settings, proc), "ok", "the running node")
    assert machine.is_running(settings, proc)
    assert not machine.is_running(settings, proc / "none")


def test_a_job_takes_what_an_estimate_says(clinic: Clinic) -> None:
    job = parse(JOB, Job, source="job")
    need = need_of_job(clinic.settings, job, 5)
    assert need.records == {"clinic": 200, "lab": 200}
    assert need.memory_bytes > 5
    costs = need.costs(1, 100)
    assert costs
    assert costs["wall_s"][1] > need.costs(1000, 1)["wall_s"][1]  # type: ignore[index]
    other = job.model_copy(update={"parties": job.parties.model_copy(update={"active": "bank"})})
    with pytest.raises(UsageError, match="no part with data"):
        need_of_job(clinic.settings, other, 0)


# 19: index, ledgers, backup.


def test_a_node_that_never_ran_remembers_nothing(clinic: Clinic) -> None:
    is_(past.check_past(clinic.settings), "skipped", "not run yet")


def written_ledger(clinic: Clinic) -> Path:
    lane = Lane(clinic.state / "partners" / "lab" / FILE, "lab", Signers(clinic.settings))
    lane.path.parent.mkdir(parents=True)
    for number in range(3):
        lane.append("begin", {"job": f"job-{number}"})
    return lane.path


def test_a_whole_index_and_ledger_are_well(clinic: Clinic) -> None:
    Index(clinic.state / "jobs.sqlite").close()
    written_ledger(clinic)
    before = (clinic.state / "jobs.sqlite").read_bytes()
    is_(past.check_past(clinic.settings), "warn", "ledgers with lab; there is no backup yet")
    now = datetime.now(timezone.utc)
    note(clinic.state, now - timedelta(days=8))
    is_(past.check_past(clinic.settings), "warn", "the last backup is 8 days old")
    note(clinic.state, now)
    is_(past.check_past(clinic.settings), "ok", "ledgers with lab; the last backup is 0 days old")
    assert (clinic.state / "jobs.sqlite").read_bytes() == before


@pytest.mark.parametrize("spoil", ["index", "newer", "ledger", "old"])
def test_what_is_wrong_with_the_past_is_named(clinic: Clinic, monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    path, index = written_ledger(clinic), clinic.state / "jobs.sqlite"
    Index(index).close()
    if spoil == "index":
        index.write_bytes(b"spoilt" + index.read_bytes()[6:])
    elif spoil == "newer":
        written_by_a_newer_release(clinic.state, min_reader=VERSION + 1)
    elif spoil == "ledger":
        path.write_bytes(path.read_bytes().replace(b"job-1", b"job-7"))
    else:
        verify = past.verify_own
        seen_at = (datetime.now(timezone.utc) - timedelta(days=8)).isoformat()
        monkeypatch.setattr(past, "verify_own", lambda *given: replace(verify(*given), seen=1, seen_at=seen_at))
    status = "warn" if spoil == "old" else "FAIL"
    said = {"index": "cannot be read", "newer": f"version {VERSION + 1}", "ledger": "entry 3", "old": "seen no entry since"}
    is_(past.check_past(clinic.settings), status, said[spoil])


# 20: cluster.


def test_a_node_without_a_cluster_is_told_so() -> None:
    is_(check_workers(EngineSettings()), "ok", "its own machine alone")


# All of them.


def test_an_error_that_a_check_expects_is_a_failure_and_a_defect_is_none() -> None:
    def refuse() -> Finding:
        raise StateError("it is damaged", code="E_STATE_CORRUPT", hint="restore it")

    def break_down() -> Finding:
        raise ZeroDivisionError

    is_(guarded(19, refuse), "FAIL", "it is damaged (E_STATE_CORRUPT)")
    is_(guarded(19, break_down), "skipped", "ZeroDivisionError")


def test_the_worst_status_counts() -> None:
    assert worst([ok(1, ""), skip(2, "")]) == "ok"
    assert worst([ok(1, ""), warn(2, "", "do")]) == "warn"
    assert worst([fail(1, "", "do"), warn(2, "", "do")]) == "FAIL"


def numbers(findings: list[Finding], status: str) -> list[int]:
    return [found.number for found in findings if found.status == status]


def test_settings_that_cannot_be_used_stop_everything_else(clinic: Clinic) -> None:
    clinic.config.write_text("name: [\n")
    findings = list(examine(clinic.config))
    assert [found.number for found in findings] == list(CHECKS)
    assert numbers(findings, "FAIL") == [1]
    assert numbers(findings, "skipped") == list(CHECKS)[1:]


def test_an_unknown_peer_and_a_job_that_is_none_are_mistakes_of_the_command(clinic: Clinic) -> None:
    for given in ({"peer": "bank"}, {"job": clinic.config.parent / "none.yaml"}):
        with pytest.raises(UsageError):
            list(examine(clinic.config, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words", [(), ("--job", "job.yaml", "--rows", "1", "2"), ("--rows", "0", "5"), ("--idle", "900"), ("--config", "no.yaml")]
)
def test_a_mistake_of_the_command_has_status_2(clinic: Clinic, words: tuple[str, ...]) -> None:
    given = words if not words or words[0] == "--config" else ("--config", str(clinic.config), *words)
    assert command("doctor", *given, folder=clinic.config.parent).returncode == 2


def test_a_program_gets_one_document_in_a_fixed_form(clinic: Clinic) -> None:
    clinic.state.chmod(0o755)
    ended = command("doctor", "--config", clinic.config, "--json")
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert list(document) == ["version", "status", "checks"]
    assert document["status"] == "FAIL"
    for check in document["checks"]:
        assert list(check) == ["number", "check", "peer", "status", "text", "hint", "figures"]
        assert check["check"] == CHECKS[check["number"]]
        assert check["status"] in ("ok", "warn", "FAIL", "skipped")
        assert isinstance(check["figures"], dict)
    assert [check["number"] for check in document["checks"]] == list(CHECKS)
    assert [check["number"] for check in document["checks"] if check["status"] == "FAIL"] == [2]
    said = command("doctor", "--config", clinic.config)
    assert said.returncode == 1
    assert " 4-14 skipped DNS to releases: this node has no peer yet" in said.stdout
    assert said.stdout.count("→") >= 1


def test_a_peer_that_dials_in_is_checked_from_there(clinic: Clinic) -> None:
    clinic.change(tls=None, insecure_loopback=True, listen="127.0.0.1:1", peers={"lab": {}})
    findings = list(examine(clinic.config))
    about_lab = [found for found in findings if found.peer == "lab"]
    assert numbers(about_lab, "skipped") == list(range(4, 15))
    assert {found.hint for found in about_lab} == {"run vfl-node doctor at lab"}
