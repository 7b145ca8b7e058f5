"""Backups of a node's state without its process: what is in them, what is refused, and what a restored state is."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.node.indexes import written_by_a_newer_release
from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.data.stability import NotedTable
from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.execution.outcome import SUMS
from vfl_node.job import Job
from vfl_node.node import index, restore, upgrade_check
from vfl_node.node.backup import back_up, last_backup
from vfl_node.node.backup_form import unpack_backup
from vfl_node.node.client import Client
from vfl_node.node.index_copies import copy_index
from vfl_node.node.partners import Partner
from vfl_node.node.releases import release_ended
from vfl_node.node.store import Store
from vfl_node.node.upgrade_check import check_upgrade
from vfl_node.process.archive import ArchiveWriter
from vfl_node.process.files import private_folder, read_checked, write_checked
from vfl_node.session.counted import telling_training
from vfl_node.settings.reading import load_settings
from vfl_node.training.prediction.stored import StoredPredictor
from vfl_node.trust.audit_log import AuditLog, Deed
from vfl_node.trust.tokens import Tokens
from vfl_node.version import VERSION

JOB = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="j")
SECRET = b"nobody may have this" * 3
NOTED = NotedTable(rows=0, columns=()).to_json()


class Clinic:
    """A node's folder with one job of each kind.

    Attributes:
        config: its settings.
        state: its state.
        done: a job that is done, with a model that is kept for predictions.
        under_way: jobs that are not over, by their state.
    """

    def __init__(self, folder: Path) -> None:
        self.config, self.state = folder / "node.yaml", folder / "state"
        node = {"name": "clinic", "role": "active", "listen": "127.0.0.1:0", "insecure_loopback": True, "policy": "policy.yaml"}
        self.config.write_text(yaml.safe_dump(node))
        (folder / "policy.yaml").write_text("version: 1\npreset: strict\n")
        (folder / "peers").mkdir()
        (folder / "peers" / "lab.yaml").write_text("address: 127.0.0.1:9\n")
        self.token = ""
        with closing(Store(self.state)) as store:
            done = store.update(store.add(JOB, submitter="clinic"), state="done", finished="now")
            kept = store.job_folder(done)
            kept.artefacts.mkdir()
            (kept.artefacts / "report.json").write_text("{}")
            kept.seal()
            kept.keep_predictor(StoredPredictor(input="0f" * 32, encoder="e", serving="s"))
            write_checked(kept.columns, NOTED)
            states: tuple[Any, ...] = ("asked", "waiting", "running", "paused", "unconfirmed")
            jobs = {state: store.update(store.add(JOB, submitter="lab"), state=state) for state in states}
            jobs["resumable"] = store.update(store.add(JOB, submitter="lab"), state="failed", code="E_PEER_LOST")
            self.done, self.under_way = done.id, {state: record.id for state, record in jobs.items()}
            for record in jobs.values():
                write_checked(store.job_folder(record).path / "seed", SECRET)
            lab = store.partner("lab")
            lab.keep("dummies-size", b"7")
            lab.own.bytes(1)
            for job in (self.done, self.under_way["running"]):
                lab.reserve(job, [telling_training("set", b"set", job, None)], [])
            lab.count(telling_training("set", b"set", self.done, None))
        self.token = Tokens(self.state).create("anna", ["viewer"], 9)
        private_folder(self.state / "schedules")
        for name in ("index.json", "weekly.marks", "weekly.marks.tmp"):
            write_checked(self.state / "schedules" / name, b"{}")
        AuditLog(self.state).add(Deed("anna", "token", "", "GET", "/", "", 200))
        (self.state / "token").write_text("the owner's own")

    @property
    def settings(self) -> Any:
        return load_settings(self.config)

    def lose(self) -> None:
        """Everything but its settings."""
        self.state.rename(self.config.parent / "lost")
        (self.config.parent / "policy.yaml").unlink()
        (self.config.parent / "peers" / "lab.yaml").unlink()


@pytest.fixture
def clinic(ram: Path) -> Iterator[Clinic]:
    before = os.umask(0o022)
    yield Clinic(ram)
    os.umask(before)


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def rewrite(path: Path, **changed: bytes | None) -> None:
    """Write a backup anew with other files, or without them, and with the sums of what it then has."""
    with tarfile.open(path) as archive:
        files = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    files |= {name.replace("__", "/").replace("_json", ".json").replace("_log", ".log"): data for name, data in changed.items()}  # type: ignore[misc]
    with path.open("wb") as file:
        writer = ArchiveWriter(file)
        for name, data in files.items():
            if name != SUMS and data is not None:
                writer.add_bytes(name, data, 0)
        writer.add_bytes(SUMS, "".join(f"{digest}  {name}\n" for name, digest in writer.sums.items()).encode(), 0)
        writer.close()


@pytest.mark.parametrize("models", [False, True])
def test_what_is_in_a_backup_and_what_is_not(clinic: Clinic, tmp_path: Path, models: bool) -> None:
    target = tmp_path / "backup.tar"
    made = back_up(clinic.settings, target, models=models)
    found = names(target)
    assert found[0] == "manifest.json"
    assert found[-1] == SUMS
    always = {"jobs.sqlite", "tokens", "audit.log", "policy.yaml", "peers/lab.yaml", "partners/own.secret"}
    always |= {"schedules/index.json", "schedules/weekly.marks"}
    always |= {f"partners/lab/{name}" for name in ("secret", "ledger.log", "dummies-size.kept")}
    job = f"jobs/{clinic.done}/"
    of_models = ("serving", "columns", "artefacts/report.json", f"artefacts/{SUMS}")
    with_models = {f"{job}{name}" for name in of_models} if models else set()
    assert set(found) == always | with_models | {"manifest.json", SUMS}
    data = target.read_bytes()
    assert SECRET not in data
    assert clinic.token.encode() not in data
    assert b"the owner's own" not in data
    assert SECRET in (clinic.state / "jobs" / clinic.under_way["running"] / "seed").read_bytes()  # a control
    assert (stat.S_IMODE(target.stat().st_mode), made.size, made.left_out) == (0o600, len(data), ())
    assert last_backup(clinic.state) == made.manifest.at
    assert list(tmp_path.glob("*.tmp")) == []


def test_the_copy_of_the_index_is_private_whatever_the_umask_and_made_while_it_is_written(
    clinic: Clinic, tmp_path: Path
) -> None:
    os.umask(0)
    on, written = threading.Event(), []
    with closing(Store(clinic.state)) as store:

        def write() -> None:
            while not on.is_set():
                written.append(store.add(JOB, submitter="clinic").id)

        thread = threading.Thread(target=write)
        thread.start()
        while not written:
            pass
        for number in range(5):
            before = len(written)
            copy_index(clinic.state / "jobs.sqlite", copy := tmp_path / str(number))
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
            with closing(sqlite3.connect(copy)) as index:
                rows = index.execute("SELECT count(*) FROM jobs").fetchone()[0]
                assert index.execute("PRAGMA user_version").fetchone()[0] > 0
            assert before + 7 <= rows <= len(written) + 8  # the one that is written at the moment may be in it
        on.set()
        thread.join()
    assert "open" not in {path.name for path in tmp_path.iterdir()}


def test_a_ledger_is_copied_whole_while_it_is_written(clinic: Clinic, tmp_path: Path) -> None:
    lab, on = Partner(clinic.state / "partners", "lab"), threading.Event()

    def write() -> None:
        number = 0
        while not on.is_set():
            number += 1
            lab.count(telling_training("set", b"set", f"job-{number}", None))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        lengths = [
            back_up(clinic.settings, tmp_path / f"{number}.tar", models=False).manifest.ledgers["lab"].entries
            for number in range(4)
        ]
    finally:
        on.set()
        thread.join()
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0]
    for number, length in enumerate(lengths):
        (folder := tmp_path / f"read {number}").mkdir()
        assert unpack_backup(tmp_path / f"{number}.tar", folder).ledgers["lab"].entries == length


def test_a_line_that_a_crash_has_cut_is_left_out(clinic: Clinic, tmp_path: Path) -> None:
    path = clinic.state / "partners" / "lab" / "ledger.log"
    path.write_bytes(path.read_bytes() + b'{"e": {"n"')
    made = back_up(clinic.settings, tmp_path / "a.tar", models=False)
    assert made.manifest.ledgers["lab"].entries == path.read_bytes().count(b"\n")


def test_a_restored_state_is_what_it_was_but_for_jobs_under_way(clinic: Clinic, tmp_path: Path) -> None:
    made = back_up(clinic.settings, tmp_path / "a.tar", models=True)
    used = Partner(clinic.state / "partners", "lab").usage()
    secret = Partner(clinic.state / "partners", "lab").secret.bytes(9)
    clinic.lose()
    done = restore.restore(tmp_path / "a.tar", clinic.config)
    assert set(done.ended) == set(clinic.under_way.values())
    assert {path.name for path in done.written} == {"policy.yaml", "lab.yaml"}
    assert clinic.settings.rules.preset == "strict"
    assert set(clinic.settings.peers) == {"lab"}
    assert Tokens(clinic.state).find(clinic.token)
    assert last_backup(clinic.state) == made.manifest.at
    assert not (clinic.state / "restoring").exists()
    with closing(sqlite3.connect(clinic.state / "jobs.sqlite")) as index:
        assert index.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    with closing(Store(clinic.state)) as store:
        assert store.record(clinic.done).state == "done"
        assert store.has_report(store.record(clinic.done))
        predictor = store.job_folder(store.record(clinic.done)).predictor
        assert predictor
        assert predictor.serving == "s"
        assert read_checked(store.job_folder(store.record(clinic.done)).columns) == NOTED
        for job in clinic.under_way.values():
            record = store.record(job)
            assert (record.state, record.code, record.over) == ("failed", "E_RESTORED", True)
        release_ended(store)  # as when the node starts: what they had set aside counts all the same
        lab = store.partner("lab")
        assert lab.usage() == used
        assert lab.secret.bytes(9) == secret
        assert [entry.kind for entry in lab.lane.entries] == ["reserve", "reserve", "count", "restore"]
        assert lab.reserving == set()
        lab.count(telling_training("set", b"set", "next", None))
        assert lab.usage()["trainings"] == used["trainings"] + 1
    modes = {stat.S_IMODE(path.stat().st_mode) for path in clinic.state.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE((clinic.state / "partners" / "lab").stat().st_mode) == 0o700


def test_without_a_restore_the_same_reservation_is_released(clinic: Clinic) -> None:
    """A control: the job under way has ended, and nothing says that a backup was restored."""
    with closing(Store(clinic.state)) as store:
        before = store.partner("lab").usage()["trainings"]
        store.update(store.record(clinic.under_way["running"]), state="cancelled")
        release_ended(store)
        assert store.partner("lab").usage()["trainings"] == before - 1


def test_files_beside_the_settings_stay_as_they_are(clinic: Clinic, tmp_path: Path) -> None:
    back_up(clinic.settings, tmp_path / "a.tar", models=False)
    clinic.lose()
    policy = clinic.config.parent / "policy.yaml"
    policy.write_text("version: 1\npreset: careful\n")
    done = restore.restore(tmp_path / "a.tar", clinic.config)
    assert (done.kept, [path.name for path in done.written]) == ((policy,), ["lab.yaml"])
    assert "careful" in policy.read_text()


def refusal(act: Any) -> str:
    with pytest.raises(VflError) as caught:
        act()
    assert caught.value.hint
    return caught.value.code


def test_a_restore_is_refused_where_it_would_harm(clinic: Clinic, tmp_path: Path, capsys: Any) -> None:
    whole = tmp_path / "a.tar"
    back_up(clinic.settings, whole, models=False)
    before = {path: path.read_bytes() for path in clinic.state.rglob("*") if path.is_file()}
    assert refusal(lambda: restore.restore(whole, clinic.config)) == "E_EXISTS"
    assert {path: path.read_bytes() for path in clinic.state.rglob("*") if path.is_file()} == before
    clinic.lose()
    text = clinic.config.read_text()
    clinic.config.write_text(text.replace("clinic", "shop"))
    assert refusal(lambda: restore.restore(whole, clinic.config)) == "E_CONFIG"
    clinic.config.write_text(text)
    assert refusal(lambda: restore.restore(tmp_path / "nowhere.tar", clinic.config)) == "E_FILE"
    clinic.config.write_text(text.replace("insecure_loopback: true", "tls: {ca: ca.crt, certificate: n.crt, key: n.key}"))
    assert refusal(lambda: restore.restore(whole, clinic.config)) == "E_FILE"  # no keys
    clinic.config.write_text(text)
    assert [path.name for path in clinic.state.iterdir()] == ["lock"]
    restore.restore(whole, clinic.config)


def test_a_restore_that_broke_off_leaves_nothing_that_a_node_starts_with(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(clinic.settings, tmp_path / "a.tar", models=False)
    clinic.lose()
    moved = []

    def move(path: Path, target: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(path.name)
        path.replace(target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", move)
        with suppress(KeyboardInterrupt):
            restore.restore(tmp_path / "a.tar", clinic.config)
    assert moved == ["partners"]
    with pytest.raises(UsageError, match="not restored to its end"):
        Store(clinic.state)
    assert refusal(lambda: restore.restore(tmp_path / "a.tar", clinic.config)) == "E_EXISTS"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_every_damage_is_seen(clinic: Clinic, tmp_path: Path) -> None:
    whole = tmp_path / "a.tar"
    back_up(clinic.settings, whole, models=False)
    with tarfile.open(whole) as archive:
        places = {info.name: info.offset_data for info in archive}
    damaged = tmp_path / "damaged.tar"
    for number, (name, place) in enumerate(places.items()):
        damaged.write_bytes(whole.read_bytes())
        flip(damaged, place + 20)
        (folder := tmp_path / str(number)).mkdir()
        assert refusal(lambda folder=folder: unpack_backup(damaged, folder)) == "E_BACKUP", name  # type: ignore[misc]
    (folder := tmp_path / "control").mkdir()
    unpack_backup(whole, folder)


def test_sums_alone_do_not_make_a_backup_whole(clinic: Clinic, tmp_path: Path) -> None:
    """Each file is looked into, too: somebody may have copied what was damaged before, or written the sums anew."""
    whole = tmp_path / "a.tar"
    back_up(clinic.settings, whole, models=False)
    ledger = (clinic.state / "partners" / "lab" / "ledger.log").read_bytes()
    with tarfile.open(whole) as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        index = archive.extractfile("jobs.sqlite").read()  # type: ignore[union-attr]
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "nothing": ({}, ""),
        "an entry changed": ({"partners__lab__ledger_log": ledger.replace(b"reserve", b"reserwe", 1)}, "E_STATE_CORRUPT"),
        "the ledger cut": ({"partners__lab__ledger_log": ledger[: ledger.index(b"\n") + 1]}, "E_BACKUP"),
        "no ledger": ({"partners__lab__ledger_log": None}, "E_BACKUP"),
        "a damaged secret": ({"partners__lab__secret": b"VFLc" + bytes(70)}, "E_BACKUP"),
        "damaged tokens": ({"tokens": b"VFLc" + bytes(70)}, "E_BACKUP"),
        "a damaged index": ({"jobs.sqlite": index[:5000] + bytes(4000) + index[9000:]}, "E_BACKUP"),
        "no index": ({"jobs.sqlite": None}, "E_BACKUP"),
        "a newer form": ({"manifest_json": json.dumps(manifest | {"format": 3}).encode()}, "E_STATE_VERSION"),
        "another manifest": ({"manifest_json": b"{}"}, "E_BACKUP"),
        "a file of another program": ({"jobs/x/seed": b""}, "E_BACKUP"),
    }
    for number, (changed, code) in enumerate(cases.values()):
        tried, folder = tmp_path / f"{number}.tar", tmp_path / str(number)
        tried.write_bytes(whole.read_bytes())
        folder.mkdir()
        rewrite(tried, **changed)
        found = ""
        try:
            unpack_backup(tried, folder)
        except StateError as error:
            found = error.code
        assert found == code, list(cases)[number]


def test_an_index_of_a_newer_release_is_not_restored(clinic: Clinic, tmp_path: Path) -> None:
    written_by_a_newer_release(clinic.state, min_reader=999)
    back_up(clinic.settings, tmp_path / "a.tar", models=False)
    clinic.lose()
    assert refusal(lambda: restore.restore(tmp_path / "a.tar", clinic.config)) == "E_STATE_VERSION"
    assert [path.name for path in clinic.state.iterdir()] == ["lock"]


def test_a_backup_is_refused_where_it_makes_no_sense_and_leaves_nothing(clinic: Clinic, tmp_path: Path) -> None:
    (there := tmp_path / "there.tar").write_text("")
    assert refusal(lambda: back_up(clinic.settings, there, models=False)) == "E_EXISTS"
    assert refusal(lambda: back_up(clinic.settings, clinic.state / "a.tar", models=False)) == "E_FILE"
    ledger = clinic.state / "partners" / "lab" / "ledger.log"
    ledger.write_bytes(ledger.read_bytes().replace(b"reserve", b"reserwe", 1))
    assert refusal(lambda: back_up(clinic.settings, tmp_path / "a.tar", models=False)) == "E_STATE_CORRUPT"
    assert {path.name for path in tmp_path.iterdir()} == {"there.tar"}
    assert last_backup(clinic.state) is None
    clinic.state.rename(clinic.state.with_name("elsewhere"))
    assert refusal(lambda: back_up(clinic.settings, tmp_path / "a.tar", models=False)) == "E_FILE"


def test_the_time_of_the_last_backup_is_checked(clinic: Clinic, tmp_path: Path) -> None:
    assert last_backup(clinic.state) is None
    back_up(clinic.settings, tmp_path / "a.tar", models=False)
    flip(clinic.state / "backup.json", -3)
    assert refusal(lambda: last_backup(clinic.state)) == "E_STATE_CORRUPT"


def looks(clinic: Clinic) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"ok": [], "warn": [], "FAIL": []}
    for look in check_upgrade(clinic.settings):
        found[look.verdict].append(look.text)
    return found


def test_before_an_upgrade_the_state_is_looked_at_and_not_changed(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in clinic.state.rglob("*") if path.is_file() and "sqlite-" not in path.name}
    found = looks(clinic)
    assert found["FAIL"] == []
    assert f"stays version {index.VERSION}" in found["ok"][0]
    assert all(job in found["warn"][0] for job in clinic.under_way.values())
    assert "does not run" in found["warn"][1]
    assert "lab (3 entries)" in found["ok"][1]
    for step, said in ((1, "becomes"), (-1, "which needs version")):
        version = index.VERSION + step
        with monkeypatch.context() as patch:
            more = (*index.MIGRATIONS, ("CREATE TABLE another (id TEXT)",))[:version]
            for module in (index, upgrade_check):
                patch.setattr(module, "VERSION" if module is index else "INDEX_VERSION", version)
            patch.setattr(index, "MIGRATIONS", more)
            found = looks(clinic)
            assert said in (found["ok"] if step == 1 else found["FAIL"])[0]
            if step == 1:
                assert " MB are free" in found["ok"][1]
                patch.setattr(upgrade_check.shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
                (failed,) = looks(clinic)["FAIL"]
                assert "0.0 MB are free where" in failed
    with monkeypatch.context() as patch:
        patch.setattr(upgrade_check, "FILES_VERSION", 0)
        assert len(looks(clinic)["FAIL"]) == len(clinic.under_way) + 1  # and the memory of the lab
    for version, verdict in (("0.99.1", "warn"), (VERSION, "ok"), (None, "warn")):
        with monkeypatch.context() as patch:
            patch.setattr(Client, "health", lambda _, version=version: {"peers": {"lab": {"version": version}}})
            patch.setattr(Client, "from_settings", lambda _: Client("127.0.0.1:1", ""))
            assert "lab" in looks(clinic)[verdict][-1]
    after = {path: path.read_bytes() for path in clinic.state.rglob("*") if path.is_file() and "sqlite-" not in path.name}
    assert after == before
    done = CliRunner().invoke(app, ["upgrade", "--check", "--config", str(clinic.config)])
    assert (done.exit_code, "ok    the index" in done.output) == (0, True)
    assert CliRunner().invoke(app, ["upgrade", "--config", str(clinic.config)]).exit_code == 1


def test_the_commands(clinic: Clinic, tmp_path: Path) -> None:
    target = str(tmp_path / "a.tar")

    def say(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, words)
        return done.exit_code, done.output + (str(done.exception) if isinstance(done.exception, VflError) else "")

    (clinic.state / "partners" / "lab.bak").mkdir()
    (clinic.state / "partners" / "lab.bak" / "secret").write_text("s")
    status, said = say("backup", target, "--config", str(clinic.config))
    assert (status, "ledgers with lab (3 entries)" in said, "left out: partners/lab.bak/secret" in said) == (0, True, True)
    status, said = say("backup", "verify", target)
    assert (status, "is whole: clinic" in said, "3 entries are as they were written" in said) == (0, True, True)
    assert "name one file" in say("backup", "one", "two")[1]
    assert "name the node" in say("backup", target)[1]
    clinic.lose()
    status, said = say("restore", target, "--config", str(clinic.config))
    assert (status, "accept-loss lab" in said, "anna" in said, "revoke" in said) == (0, True, True, True)
    quiet = say("backup", str(tmp_path / "b.tar"), "--config", str(clinic.config), "--quiet")
    assert quiet == (0, "")
